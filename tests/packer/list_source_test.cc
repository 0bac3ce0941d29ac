#include <gmock/gmock.h>

#include "packer/source.h"
#include "tests/support/temporary_folder.h"

namespace headrace {
namespace {

using ::headrace::testing::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ListSourceTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<Source>> Open(const std::string& csv) {
    return OpenListSource(folder_.Write("list.csv", csv));
  }
  std::vector<SourceItem> Items(Source* source) {
    std::vector<SourceItem> items(1);
    while (*source->Next(&items.back())) items.emplace_back();
    items.pop_back();
    return items;
  }
  TemporaryFolder folder_;
};

TEST_F(ListSourceTest, ColumnsHaveTheNarrowestKindThatHoldsAllValues) {
  auto source = Open(
      "path,label,whole,number,text,empty,huge\n"
      "a.jpg,3,1,1,1,,1\n"
      "b.jpg,-7,-9223372036854775808,2.5e3,x,,9223372036854775808\n");
  ASSERT_TRUE(source.ok()) << source.status();
  std::vector<std::string> kinds;
  for (const Field& field : (*source)->fields()) {
    kinds.push_back(field.name + " " + std::to_string(static_cast<int>(field.kind)));
  }
  EXPECT_THAT(kinds, ElementsAre("image 1", "label 2", "name 4", "whole 2", "number 3", "text 4", "empty 4", "huge 3"));
  EXPECT_THAT((*source)->classes(), IsEmpty());
  const std::vector<SourceItem> items = Items(source->get());
  ASSERT_EQ(items.size(), 2u);
  EXPECT_EQ(items[1].label, -7);
  EXPECT_EQ(std::get<int64_t>(items[1].columns[0]), INT64_MIN);
  EXPECT_EQ(std::get<double>(items[1].columns[1]), 2500.0);
  EXPECT_EQ(std::get<double>(items[0].columns[1]), 1.0);
  EXPECT_EQ(std::get<std::string>(items[1].columns[2]), "x");
  EXPECT_EQ(std::get<std::string>(items[1].columns[3]), "");
}

TEST_F(ListSourceTest, LabelsThatAreNotAllIntegersAreSortedIntoClasses) {
  auto source = Open("path,label\na,dog\nb,10\nc,cat\nd,dog\n");
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_THAT((*source)->classes(), ElementsAre("10", "cat", "dog"));
  std::vector<int64_t> labels;
  for (const SourceItem& item : Items(source->get())) labels.push_back(item.label);
  EXPECT_THAT(labels, ElementsAre(2, 0, 1, 2));
}

TEST_F(ListSourceTest, AnEmptyLabelIsAnErrorThatNamesItsLine) {
  const auto source = Open("path,label\na,1\nb,\n");
  EXPECT_EQ(source.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(source.status().message()), HasSubstr("line 3: the label is empty"));
}

TEST_F(ListSourceTest, ColumnsThatWouldBeMistakenAreErrors) {
  const auto message = [&](const std::string& text) { return std::string(Open(text).status().message()); };
  EXPECT_THAT(message("path, label\na,1\n"), HasSubstr("' label', begins or ends with a blank"));
  EXPECT_THAT(message("path,path\na,b\n"), HasSubstr("two columns `path`"));
  EXPECT_THAT(message("path,text\na,b\na,\xff\n"), HasSubstr("line 3: the value of `text` is no UTF-8"));
}

TEST_F(ListSourceTest, APipeIsRefusedBecauseAListIsReadTwice) {
  EXPECT_THAT(std::string(OpenListSource("/dev/null").status().message()), HasSubstr("no regular file"));
}

TEST_F(ListSourceTest, PathsAreRelativeToTheListOrAbsoluteAndNamesAreAsListed) {
  auto source = Open("label,path\n1,sub/a.jpg\n2,/x/b.jpg\n3,../c.jpg\n1,sub/a.jpg\n");
  ASSERT_TRUE(source.ok()) << source.status();
  std::vector<std::string> paths, names;
  for (const SourceItem& item : Items(source->get())) {
    paths.push_back(item.path);
    names.push_back(item.name);
  }
  EXPECT_THAT(names, ElementsAre("sub/a.jpg", "/x/b.jpg", "../c.jpg", "sub/a.jpg"));
  EXPECT_EQ(paths[0], folder_.File("sub/a.jpg"));
  EXPECT_EQ(paths[1], "/x/b.jpg");
  EXPECT_EQ(paths[2], folder_.File("../c.jpg"));
}

TEST_F(ListSourceTest, WithoutLabelsThereIsNoSuchField) {
  auto source = Open("path\na.jpg\n");
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_FALSE((*source)->has_labels());
}

TEST_F(ListSourceTest, MistakesNameTheLine) {
  EXPECT_THAT(Open("").status().ToString(), HasSubstr("`path`"));
  EXPECT_THAT(Open("file,label\na,1\n").status().ToString(), HasSubstr("`path`"));
  EXPECT_THAT(Open("path,label\n").status().ToString(), HasSubstr("lists no file"));
  EXPECT_THAT(Open("path,label\na,1\nb\n").status().ToString(), HasSubstr("line 3: 1 values for 2 columns"));
  EXPECT_THAT(Open("path,label\na,1\n\n,2\n").status().ToString(), HasSubstr("line 4: the path is empty"));
  EXPECT_THAT(Open("path,image\na,1\n").status().ToString(), HasSubstr("two fields are named `image`"));
  EXPECT_THAT(Open("path,name\na,1\n").status().ToString(), HasSubstr("two fields are named `name`"));
  EXPECT_THAT(Open("path,x,x\na,1,2\n").status().ToString(), HasSubstr("two fields are named `x`"));
  EXPECT_THAT(Open("path,\na,1\n").status().ToString(), HasSubstr("field's name"));
  EXPECT_THAT(Open("path,\xFF\na,1\n").status().ToString(), HasSubstr("column 2 is no UTF-8"));
  EXPECT_TRUE(absl::IsNotFound(OpenListSource(folder_.File("none.csv")).status()));
}

TEST_F(ListSourceTest, TheContentHashChangesWithTheList) {
  const uint64_t one = (*Open("path\na\n"))->content_hash();
  EXPECT_EQ((*Open("path\na\n"))->content_hash(), one);
  EXPECT_NE((*Open("path\nb\n"))->content_hash(), one);
}

}  // namespace
}  // namespace headrace
