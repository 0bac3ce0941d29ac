#include "core/base/status.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>

namespace headrace {
namespace {

TEST(Status, TurnsErrnoIntoACodeAndSaysWhat) {
  EXPECT_EQ(ErrnoStatus(ENOENT, "x").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ErrnoStatus(ENOSPC, "x").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ErrnoStatus(EACCES, "x").code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(ErrnoStatus(ENOENT, "cannot open f").message(),
            "cannot open f: No such file or directory");
  EXPECT_EQ(ErrnoStatus(EMFILE, "x").message(), "x: Too many open files (raise the limit: ulimit -n, LimitNOFILE)");
}

TEST(Status, AnnotatesErrorsOnly) {
  EXPECT_TRUE(Annotate(absl::OkStatus(), "shard 3").ok());
  const absl::Status status = Annotate(absl::DataLossError("wrong hash"), "shard 3");
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(status.message(), "shard 3: wrong hash");
}

absl::StatusOr<int> Half(int number) {
  if (number % 2 != 0) return absl::InvalidArgumentError("odd");
  return number / 2;
}

absl::StatusOr<int> Quarter(int number) {
  HEADRACE_ASSIGN_OR_RETURN(const int half, Half(number));
  HEADRACE_ASSIGN_OR_RETURN(const int quarter, Half(half));
  HEADRACE_RETURN_IF_ERROR(Half(quarter * 2).status());
  return quarter;
}

TEST(Status, MacrosReturnTheFirstError) {
  EXPECT_EQ(*Quarter(12), 3);
  EXPECT_EQ(Quarter(6).status().message(), "odd");
  EXPECT_EQ(Quarter(5).status().message(), "odd");
}

}  // namespace
}  // namespace headrace
