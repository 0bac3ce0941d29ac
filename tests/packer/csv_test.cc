#include "packer/csv.h"

#include <gmock/gmock.h>

#include "tests/support/temporary_folder.h"

namespace headrace {
namespace {

using ::headrace::testing::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Records = std::vector<std::vector<std::string>>;

absl::StatusOr<Records> ReadAll(const std::string& text) {
  TemporaryFolder folder;
  absl::StatusOr<CsvReader> reader = CsvReader::Open(folder.Write("list.csv", text));
  if (!reader.ok()) return reader.status();
  Records records;
  std::vector<std::string> record;
  while (true) {
    const absl::StatusOr<bool> more = reader->Next(&record);
    if (!more.ok()) return more.status();
    if (!*more) return records;
    records.push_back(record);
  }
}

TEST(Csv, ReadsWhatRfc4180Describes) {
  const auto records = ReadAll("a,b,c\r\n1,\"x,y\",\"say \"\"hi\"\"\"\r\n,\"two\nlines\",\"\"\r\n");
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_THAT(*records, ElementsAre(ElementsAre("a", "b", "c"), ElementsAre("1", "x,y", "say \"hi\""),
                                    ElementsAre("", "two\nlines", "")));
}

TEST(Csv, DropsTheByteOrderMarkAndBlankLinesAndNeedsNoLastLineEnd) {
  const auto records = ReadAll("\xEF\xBB\xBFpath\n\n\r\na.jpg\n\nb.jpg");
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_THAT(*records, ElementsAre(ElementsAre("path"), ElementsAre("a.jpg"), ElementsAre("b.jpg")));
}

TEST(Csv, AnEmptyFileHasNoRecord) {
  EXPECT_TRUE(ReadAll("")->empty());
  EXPECT_TRUE(ReadAll("\n\n")->empty());
}

TEST(Csv, ALastEmptyValueCounts) {
  EXPECT_THAT(*ReadAll("a,\n"), ElementsAre(ElementsAre("a", "")));
  EXPECT_THAT(*ReadAll("a,"), ElementsAre(ElementsAre("a", "")));
}

TEST(Csv, BrokenQuotingNamesTheLine) {
  EXPECT_THAT(ReadAll("a\nb\n\"c\nd").status().ToString(), HasSubstr("line 3: a quote is not closed"));
  EXPECT_THAT(ReadAll("a\n\"b\"c\n").status().ToString(), HasSubstr("line 2: text behind"));
}

TEST(Csv, AnEndlessRecordIsRefused) {
  EXPECT_THAT(ReadAll("\"" + std::string(2 << 20, 'x')).status().ToString(), HasSubstr("1 MiB"));
  EXPECT_THAT(ReadAll(std::string(2 << 20, 'x')).status().ToString(), HasSubstr("1 MiB"));
}

TEST(Csv, QuotedValuesAreReadBack) {
  for (const char* value : {"", "plain", "a,b", "say \"hi\"", "two\nlines", "\"", "cr\rinside", ",", "\n"}) {
    const auto records = ReadAll("x," + CsvQuote(value) + ",y\n");
    ASSERT_TRUE(records.ok()) << records.status();
    EXPECT_THAT(*records, ElementsAre(ElementsAre("x", value, "y"))) << value;
  }
}

}  // namespace
}  // namespace headrace
