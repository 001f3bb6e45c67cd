#include "base/text/flag_errors.h"

#include <doctest/doctest.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>
#include <vector>

#include "base/error.h"
#include "tests/support/temp_folder.h"

namespace zeroth::flag_errors_test {
namespace {

// What flag_error says of these words; empty when they are understood.
std::string complaint(std::vector<std::string> words) {
  CLI::App app("", "test");
  std::optional<int> count;
  std::vector<double> pair;
  std::string file;
  bool yes = false;
  int hidden = 0;
  app.add_option("FILE", file)->required();
  app.add_option("--num,--number", count);
  app.add_option("--num-pairs", pair)->expected(2);
  app.add_flag("--yes", yes);
  app.add_option("--secret", hidden)->group("");
  std::reverse(words.begin(), words.end());
  try {
    app.parse(words);
    return "";
  } catch (const CLI::ParseError& error) {
    return flag_error(app, error);
  }
}

}  // namespace

TEST_CASE("every way in which a command line can be wrong is told in our words") {
  CHECK(complaint({"f", "--num", "3", "--num-pairs", "1", "2", "--yes"}).empty());
  CHECK(complaint({}) == "FILE is missing");
  CHECK(complaint({"f", "--num"}) == "--num needs a value");
  CHECK(complaint({"f", "--num", "3", "--number"}) == "--num needs a value");
  CHECK(complaint({"f", "--num", "x"}) == "--num x: must be a whole number");
  CHECK(complaint({"f", "--num=--yes"}) == "--num --yes: must be a whole number");
  CHECK(complaint({"f", "--num", "1", "--num", "2"}) == "--num is given twice");
  CHECK(complaint({"f", "--num-pairs", "1"}) == "--num-pairs needs 2 values");
  CHECK(complaint({"f", "--num-pairs", "1", "x"}) == "--num-pairs 1 x: must be a number");
  CHECK(complaint({"f", "--yes=maybe"}) == "--yes=maybe: does not accept a value");
}

TEST_CASE("a hidden flag is named all the same") {
  CHECK(complaint({"f", "--secret", "x"}) == "--secret x: must be a whole number");
  CHECK(complaint({"f", "--secret", "1", "--secret", "2"}) == "--secret is given twice");
  CHECK(complaint({"f", "--secret"}) == "the last flag needs a value");
}

TEST_CASE("what no option takes is named, an unknown flag with the nearest one") {
  CHECK(complaint({"f", "g"}) == "unexpected: g");
  CHECK(complaint({"f", "--yess"}) == "--yess: unknown flag; did you mean --yes?");
  CHECK(complaint({"f", "--qqqqqq=1"}) == "--qqqqqq: unknown flag");
}

TEST_CASE("what is long is cut wherever it stands") {
  const std::string text(10'000, 'x');
  using Words = std::vector<std::string>;
  for (const Words& words : {Words{"f", text}, Words{"f", "--" + text}, Words{"f", "--num", text},
                             Words{"f", "--yes=" + text}, Words{"f", "--num-pairs", "1", text}}) {
    CAPTURE(words[1].substr(0, 20));
    CHECK(complaint(words).size() < 200);
    CHECK(complaint(words).find("... (1000") != std::string::npos);
  }
}

TEST_CASE("empty_flag_value: a flag with an empty value is named in both forms") {
  const auto errors = [](std::vector<std::string> words) {
    return empty_value_errors(words, {"--include", "-i"});
  };
  using Words = std::vector<std::string>;
  CHECK(errors({"--num", "", "f"}) == Words{"--num needs a value"});
  CHECK(errors({"--num=", "f"}) == Words{"--num needs a value"});
  CHECK(errors({"-H", ""}) == Words{"-H needs a value"});
  CHECK(errors({"--betas", "1", ""}) == Words{"--betas needs a value"});
  CHECK(errors({""}) == Words{"an argument is empty"});
  CHECK(errors({"--a", "", "--b="}) == Words{"--a needs a value", "--b needs a value"});
  CHECK(errors({"--include", ""}).empty());
  CHECK(errors({"--include", "x", ""}) == Words{"--include needs a value"});
  CHECK(errors({"--num", "3", "--text=a=", "-x", "-"}).empty());
  Words words = {"--include=", "f"};
  CHECK(empty_value_errors(words, {"--include"}).empty());
  CHECK(words == Words{"--include", "", "f"});
}

TEST_CASE("a subcommand answers with its help, or refuses its arguments by its own name") {
  const auto parse = [](const std::vector<std::string>& words) {
    CLI::App app("Shows files.", "zeroth show");
    std::string file;
    app.add_option("FILE", file)->required();
    const std::string help = parse_subcommand(app, words);
    return help.empty() ? file : help;
  };
  CHECK(parse({"f"}) == "f");
  CHECK(parse({"--help"}).starts_with("Shows files."));
  CHECK(message_of<UsageError>([&] { parse({}); }) == "show: FILE is missing (zeroth show --help)");
  CHECK(message_of<UsageError>([&] { parse({""}); }) ==
        "show: an argument is empty (zeroth show --help)");
}

}  // namespace zeroth::flag_errors_test
