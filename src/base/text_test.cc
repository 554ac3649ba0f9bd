#include "base/text.h"

#include <gtest/gtest.h>

namespace ropewalk {
namespace {

TEST(Printable, KeepsWhatIsUtf8) {
  for (const char* text : {"", "plain", "é", "漢字", "\xf0\x9f\x98\x80", "~\xc2\xa0"})
    EXPECT_EQ(printable(text), text);
}

TEST(Printable, ReplacesWhatIsNot) {
  EXPECT_EQ(printable("caf\xe9"), "caf\uFFFD");  // Latin-1
  EXPECT_EQ(printable("\xc3"), "\uFFFD");        // cut off
  EXPECT_EQ(printable("\xc3x"), "\uFFFDx");
  EXPECT_EQ(printable("\xc0\x80"), "\uFFFD\uFFFD");  // not the shortest form
  EXPECT_EQ(printable("\xe0\x80\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(printable("\xed\xa0\x80"), "\uFFFD\uFFFD\uFFFD");  // a surrogate
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(printable("\x80\xff"), "\uFFFD\uFFFD");
}

TEST(Printable, LetsNoControlCharacterThrough) {
  EXPECT_EQ(printable("a\nb\tc\r"), "a b c ");
  EXPECT_EQ(printable("\x1b[31m"), "\uFFFD[31m");
  EXPECT_EQ(printable("a\u2028b"), "a b");
  EXPECT_EQ(printable("\u202egpj.exe"), "\uFFFDgpj.exe");
  EXPECT_EQ(printable("\x7f\xc2\x9b"), "\uFFFD\uFFFD");
  EXPECT_EQ(printable(std::string(1, '\0')), "\uFFFD");
}

TEST(Cut, EndsBetweenCodePoints) {
  EXPECT_EQ(cut("xéé", 9), "xéé");
  EXPECT_EQ(cut("xéé", 4), "xé");
  EXPECT_EQ(cut("xéé", 3), "xé");
  EXPECT_EQ(cut("xéé", 2), "x");
  EXPECT_EQ(cut("\xf0\x9f\x98\x80", 3), "");
  EXPECT_EQ(cut(std::string(9, '\xa4'), 7).size(), 7u) << "no UTF-8";
}

}  // namespace
}  // namespace ropewalk
