#include "core/base/file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

namespace headrace {
namespace {

using ::testing::HasSubstr;

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

std::string PathOf(const std::string& name) {
  return ::testing::TempDir() + "file_test_" + std::to_string(::getpid()) + "_" + name;
}

// A file that is gone at the end of the test.
class TemporaryFile {
 public:
  TemporaryFile(const std::string& name, const std::string& content) : path_(PathOf(name)) {
    std::ofstream(path_, std::ios::binary) << content;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(File, ReadsWholeFilesOfAnySizeUpToTheLimit) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{100000}}) {
    std::string content(size, '\0');
    for (size_t i = 0; i < size; ++i) content[i] = static_cast<char>(i * 7);
    const TemporaryFile file("whole", content);
    EXPECT_EQ(*ReadFile(file.path(), size), content);
  }
}

TEST(File, RefusesAFileAboveTheLimit) {
  const TemporaryFile file("large", "12345");
  const absl::Status status = ReadFile(file.path(), 4).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(MessageOf(status), HasSubstr(file.path() + " has 5 bytes; at most 4"));
}

TEST(File, SaysWhichFileIsMissing) {
  const std::string path = PathOf("missing");
  const absl::Status status = OpenForReading(path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(MessageOf(status), HasSubstr(path));
}

TEST(File, IsNotInheritedByPrograms) {
  const TemporaryFile file("inherited", "x");
  const auto fd = OpenForReading(file.path());
  ASSERT_TRUE(fd.ok());
  EXPECT_NE(::fcntl(fd->get(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(File, ReadsAtAnOffsetAndSaysWhenTheFileEnds) {
  const TemporaryFile file("offset", "0123456789");
  const auto fd = OpenForReading(file.path());
  ASSERT_TRUE(fd.ok());
  char bytes[4];
  ASSERT_TRUE(ReadAt(fd->get(), bytes, 4, 6, "ten bytes").ok());
  EXPECT_EQ(std::string(bytes, 4), "6789");
  EXPECT_TRUE(ReadAt(fd->get(), bytes, 0, 100, "ten bytes").ok());
  const absl::Status status = ReadAt(fd->get(), bytes, 4, 7, "ten bytes");
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(MessageOf(status), "ten bytes ends before offset 11");
  EXPECT_EQ(*FileSize(fd->get(), "ten bytes"), 10u);
}

TEST(File, SaysWhatFailed) {
  char byte;
  EXPECT_THAT(MessageOf(ReadAt(-1, &byte, 1, 0, "no file")), HasSubstr("cannot read no file"));
  EXPECT_THAT(MessageOf(WriteAll(-1, "x", 1, "no file")), HasSubstr("cannot write no file"));
  EXPECT_THAT(MessageOf(FileSize(-1, "no file").status()), HasSubstr("cannot stat no file"));
}

TEST(File, AFullDiskIsResourceExhausted) {
  const UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(full.valid());
  EXPECT_EQ(WriteAll(full.get(), "x", 1, "the disk").code(), absl::StatusCode::kResourceExhausted);
}

// A pipe holds less than is written, and signals interrupt the writer: both give short writes.
TEST(File, WritesEverythingInSpiteOfShortWritesAndSignals) {
  struct sigaction action = {}, old = {};
  action.sa_handler = [](int) {};  // without SA_RESTART
  ASSERT_EQ(::sigaction(SIGUSR1, &action, &old), 0);
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reader(ends[0]);
  std::string content(1 << 20, '\0');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 31 >> 3);
  absl::Status status = absl::UnknownError("not written");
  std::thread writer([&content, &status, end = ends[1]] {
    const UniqueFd owned(end);
    status = WriteAll(owned.get(), content.data(), content.size(), "pipe");
  });
  std::string received;
  char piece[5000];
  while (true) {
    if (received.size() < content.size() / 2) ::pthread_kill(writer.native_handle(), SIGUSR1);
    const ssize_t n = ::read(reader.get(), piece, sizeof(piece));
    if (n <= 0) break;
    received.append(piece, static_cast<size_t>(n));
  }
  writer.join();
  ::sigaction(SIGUSR1, &old, nullptr);
  EXPECT_EQ(status, absl::OkStatus());
  EXPECT_TRUE(received == content);
}

TEST(UniqueFd, ClosesOnceAndWhatItOwnedBeforeAMove) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const auto is_open = [](int fd) { return ::fcntl(fd, F_GETFD) != -1; };
  {
    UniqueFd first(ends[0]);
    UniqueFd second(std::move(first));
    EXPECT_FALSE(first.valid());
    EXPECT_TRUE(is_open(ends[0]));
    {
      UniqueFd third(ends[1]);
      second = std::move(third);
      EXPECT_EQ(second.get(), ends[1]);
    }
    EXPECT_FALSE(is_open(ends[0])) << "the old descriptor went with the temporary";
    EXPECT_EQ(second.release(), ends[1]);
  }
  EXPECT_TRUE(is_open(ends[1])) << "released";
  ::close(ends[1]);
}

}  // namespace
}  // namespace headrace
