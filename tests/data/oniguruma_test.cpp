#include "data/tokenizer/regex.h"
#include "tests/data/data_test_support.h"

namespace zeroth::data::oniguruma_test {

TEST_CASE("White space becomes the property, inside and outside a class") {
  CHECK(to_pcre2(R"(\s+(?!\S))") == R"(\p{White_Space}+(?!\P{White_Space}))");
  CHECK(to_pcre2(R"([^\s\p{L}\p{N}])") == R"([^\p{White_Space}\p{L}\p{N}])");
}

TEST_CASE("What means the same in both dialects is kept") {
  for (const char* const same :
       {R"((?i:'s|'t)|a++|b*+|c?+|d{1,3}?|e{2,}|f{3})", R"(\p{Lu}\P{N}\d\r\n\t\x{4e00}+\x41\.\[)",
        R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+)", R"(\p{L}+\p{N}++)",
        "(?>a)(?<=b)(?<!c)^d$"}) {
    CHECK(to_pcre2(same) == same);
  }
}

TEST_CASE("A plus behind an interval repeats it and is not possessive") {
  CHECK(to_pcre2(R"(b\p{N}{1,3}+|a)") == R"(b(?:\p{N}{1,3})+|a)");
  CHECK(to_pcre2(R"(x(?:a|(b)c){2}+)") == R"(x(?:(?:a|(b)c){2})+)");
  CHECK(to_pcre2("[ab]{2,}+\u65e5{2}+?") == "(?:[ab]{2,})+(?:\u65e5{2})+?");
}

TEST_CASE("A script's name does not take its extensions") {
  CHECK(to_pcre2(R"([\p{Han}])") == R"([\p{sc:Han}])");
}

TEST_CASE("What the dialects read differently is refused by name") {
  for (const auto& [pattern, part] :
       std::initializer_list<std::pair<const char*, const char*>>{{R"(\w+)", R"(\w)"},
                                                                  {R"(a\b)", R"(\b)"},
                                                                  {R"(\h)", R"(\h)"},
                                                                  {R"(\1)", R"(\1)"},
                                                                  {"[a&&[b]]", "&& inside"},
                                                                  {"[a[b]]", "[ inside"},
                                                                  {"[[:alpha:]]", "[ inside"},
                                                                  {"[]a]", "[]"},
                                                                  {"a{,3}", "{,3}"},
                                                                  {"a{b}", "{b}"},
                                                                  {"a{3", "{3"},
                                                                  {"a{3}?", "{3}?"},
                                                                  {"(?m:.)", "(?m:"},
                                                                  {"(*UTF)", "(*"},
                                                                  {R"(\p{^L})", R"(\p{^L})"},
                                                                  {R"(\pL)", R"(\p)"},
                                                                  {"\\", "\\"}}) {
    const std::string message = error_of([&] { to_pcre2(pattern); });
    check_contains(message, pattern);
    check_contains(message, std::string("'") + part);
  }
}

}  // namespace zeroth::data::oniguruma_test
