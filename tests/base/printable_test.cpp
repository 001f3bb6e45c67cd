#include "base/text/printable.h"

#include <doctest/doctest.h>

namespace zeroth::printable_test {

TEST_CASE("control bytes are shown, and all other text stays") {
  CHECK(printable("a\x1b[31mb\x07\r\n\t") == "a\\u001b[31mb\\u0007\\r\\n\\t");
  CHECK(printable("\x7f") == "\\u007f");
  CHECK(printable("\xc2\x9b") == "\\u009b");  // C1: a terminal's CSI
  CHECK(printable(std::string("a\0b", 3)) == "a\\u0000b");
  CHECK(printable("B\xc3\xa4r \xe6\xbc\xa2 \xf0\x9f\x98\x80 \\n") ==
        "B\xc3\xa4r \xe6\xbc\xa2 \xf0\x9f\x98\x80 \\n");
}

TEST_CASE("marks that turn the order of a line are shown") {
  CHECK(printable("a\xe2\x80\xae"
                  "b") == "a\\u202eb");
  CHECK(printable("\xe2\x81\xa6\xe2\x80\xa8") == "\\u2066\\u2028");
}

TEST_CASE("bytes that are not UTF-8 are shown one by one") {
  CHECK(printable("\xff\x80z") == "\\xff\\x80z");
  CHECK(printable("\xc3") == "\\xc3");
  CHECK(printable("\xc0\xaf") == "\\xc0\\xaf");           // overlong
  CHECK(printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");  // a surrogate
  CHECK(printable("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");
}

TEST_CASE("printable text may pass twice") {
  const std::string once = printable("\x1b\xff\n");
  CHECK(printable(once) == once);
}

TEST_CASE("a message keeps its indented lines, and nothing within it begins a line") {
  CHECK(printable_message("f: 2 errors\n  a\n    b\n") == "f: 2 errors\n  a\n    b\n");
  CHECK(printable_message("no file x\nfinetune: done") == "no file x\\nfinetune: done");
  CHECK(printable_message("a\r  b") == "a\\r  b");
}

TEST_CASE("a long text is shown by its beginning and its size") {
  CHECK(shortened("abc") == "abc");
  CHECK(shortened(std::string(100, 'a'), 10) == "aaaaaaaaaa... (100 bytes)");
  CHECK(shortened("\xc3\xa4\xc3\xa4", 3) == "\xc3\xa4... (4 bytes)");
  CHECK(shortened(std::string(100, '\xbf'), 2) == "\\xbf\\xbf... (100 bytes)");
}

TEST_CASE("of what a library says the first line is quoted") {
  CHECK(quotation("sizes differ\nframe #0: x") == "\"sizes differ\"");
  CHECK(quotation("\x1b[2J") == "\"\\u001b[2J\"");
  CHECK(quotation(std::string(1000, 'a')) == "\"" + std::string(300, 'a') + "... (1000 bytes)\"");
}

}  // namespace zeroth::printable_test
