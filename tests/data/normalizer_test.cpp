#include "data/tokenizer/normalizer.h"

#include "tests/data/data_test_support.h"

namespace zeroth::data::normalizer_test {
using nlohmann::json;

namespace {

void check_refused(const char* normalizer, const char* part) {
  check_contains(error_of([&] { Normalizer refused(json::parse(normalizer)); }), part);
}

}  // namespace

TEST_CASE("Texts are normalised as Hugging Face's tokenizers do it, for every kind") {
  int cases = 0;
  for (const json& shape : read_fixture("normalizers.json")) {
    const Normalizer normalizer(shape.at("normalizer"));
    for (const json& one : shape.at("cases")) {
      INFO(shape.at("normalizer").dump());
      const auto text = one.at("text").get<std::string>();
      CHECK(normalizer.run(text) == one.at("normal").get<std::string>());
      ++cases;
    }
  }
  CHECK(cases >= 90);
}

TEST_CASE("Without a normalizer a text stays as it is") {
  CHECK(Normalizer(nullptr).run(" A\u0301 ") == " A\u0301 ");
}

TEST_CASE("Who may cut the beginning of a text off says so") {
  const auto cuts = [](const char* text) {
    return Normalizer(json::parse(text)).strips_beginning();
  };
  CHECK(cuts(R"({"type": "Strip", "strip_left": true, "strip_right": false})"));
  CHECK(cuts(R"({"type": "Replace", "pattern": {"Regex": "^ +"}, "content": ""})"));
  CHECK(!cuts(R"({"type": "Strip", "strip_left": false, "strip_right": true})"));
  CHECK(!cuts(R"({"type": "NFC"})"));
}

TEST_CASE("A kind of normalizer that is not known is refused by name, a missing part by its key") {
  check_refused(R"({"type": "BertNormalizer"})", "normalizer type 'BertNormalizer'");
  check_refused(R"({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Nmt"}]})",
                "'Nmt'");
  check_refused(R"({"type": "Prepend"})", "normalizer.prepend is missing");
  check_refused(R"({"type": "Replace", "pattern": {}, "content": ""})",
                "normalizer.pattern.String is missing");
}

TEST_CASE("A text that steps multiply is stopped, as are steps without end") {
  json doubling = {{"type", "Sequence"}, {"normalizers", json::array()}};
  for (int i = 0; i < 60; ++i) {
    doubling["normalizers"].push_back(
        {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}});
  }
  check_contains(error_of([&] { Normalizer(doubling).run("banana"); }),
                 "normalizer: a text of 6 bytes grows beyond 4480");
  for (int i = 0; i < 60; ++i) doubling["normalizers"].push_back({{"type", "NFC"}});
  check_contains(error_of([&] { Normalizer refused(doubling); }),
                 "normalizer.normalizers[100]: more than 100 steps");
}

}  // namespace zeroth::data::normalizer_test
