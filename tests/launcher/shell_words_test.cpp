#include "launcher/backends/shell_words.h"

#include <doctest/doctest.h>

#include <cstdio>

#include "base/error.h"
#include "tests/support/temp_folder.h"

namespace zeroth::launcher::shell_words_test {
namespace {

using Words = std::vector<std::string>;

// What /bin/sh makes of a line: each word behind the first as <word>.
std::string by_shell(const std::string& line) {
  const TempFolder directory;
  directory.write("script", "show() { for word; do printf '<%s>' \"$word\"; done; }\nshow " + line);
  FILE* pipe = ::popen(("/bin/sh " + (directory / "script").string()).c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string out;
  for (int byte; (byte = std::fgetc(pipe)) != EOF;) out += static_cast<char>(byte);
  CHECK(::pclose(pipe) == 0);
  return out;
}

std::string shown(const Words& words) {
  std::string text;
  for (const std::string& word : words) text += "<" + word + ">";
  return text;
}

}  // namespace

TEST_CASE("a shell reads back exactly the words that were quoted for it") {
  const Words words = {"I am 6' tall",
                       "I am 72\" tall",
                       "'\"translate English to Romanian: \"'",
                       "I'm going to tell them \"DeepSpeed is the best\"",
                       "64(x2)",
                       "",
                       "$HOME `id` $(id) ${x}",
                       "a\\b\\",
                       "*",
                       "~",
                       "#no comment",
                       "a;b|c&d>e<f",
                       "!!",
                       "two\nlines",
                       "\ttab",
                       "\xc3\xa9 \xff",
                       "'",
                       "''",
                       "=ls",
                       "-n"};
  CHECK(by_shell(shell_join(words)) == shown(words));
  for (const std::string& word : words) CHECK(by_shell(shell_quote(word)) == shown({word}));
}

TEST_CASE("words that need no quotes have none") {
  for (const char* word : {"worker-0", "/opt/zeroth/bin/zeroth", "10.0.0.1:29500,[", "a@b"})
    CHECK((shell_quote(word) == word) == (std::string(word).find('[') == std::string::npos));
  CHECK(shell_quote("it's") == "'it'\\''s'");
  CHECK(shell_quote("") == "''");
}

TEST_CASE("a text is grouped into words as a shell does it, but nothing is expanded") {
  const auto split = [](const std::string& text) { return shell_split(text, "--flag"); };
  CHECK(split("").empty());
  CHECK(split(" \t\n ").empty());
  CHECK(split("-x  A=b\t-v") == Words{"-x", "A=b", "-v"});
  CHECK(split("--mca btl '^openib'") == Words{"--mca", "btl", "^openib"});
  CHECK(split("a'b c'\"d e\"f") == Words{"ab cd ef"});
  CHECK(split("'' \"\"") == Words{"", ""});
  CHECK(split("a\\ b \\' \\\\") == Words{"a b", "'", "\\"});
  CHECK(split("\"a\\\"b\\$c\\`d\\\\e\\f\"") == Words{"a\"b$c`d\\e\\f"});
  CHECK(split("a\\\nb \"c\\\nd\"") == Words{"ab", "cd"});
  CHECK(split("$HOME * ; # `id`") == Words{"$HOME", "*", ";", "#", "`id`"});
}

TEST_CASE("the same text gives the words of a shell") {
  for (const char* text : {"a 'b c' d", "a\"b 'c' \\\" \\a\"d", "\\'a\\\" 'x\\y'", "a''b \"\" c"})
    CHECK(shown(shell_split(text, "--flag")) == by_shell(text));
}

TEST_CASE("a quote without an end is refused with the flag") {
  const auto error = [](const std::string& text) {
    return message_of<UsageError>([&] { shell_split(text, "--launcher_args"); });
  };
  CHECK(error("a 'b") == "--launcher_args a 'b: unterminated single quote");
  CHECK(error("a \"b") == "--launcher_args a \"b: unterminated double quote");
  CHECK(error("a \"b\\") == "--launcher_args a \"b\\: unterminated double quote");
  CHECK(error("a\\") == "--launcher_args a\\: unterminated backslash");
}

}  // namespace zeroth::launcher::shell_words_test
