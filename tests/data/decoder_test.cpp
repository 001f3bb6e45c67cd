#include "data/tokenizer/decoder.h"

#include "tests/data/data_test_support.h"

namespace zeroth::data::decoder_test {
using nlohmann::json;

TEST_CASE("Tokens are decoded as Hugging Face's tokenizers do it, for every kind of decoder") {
  int cases = 0;
  for (const json& shape : read_fixture("decoders.json")) {
    const Decoder decoder(shape.at("decoder"));
    for (const json& one : shape.at("cases")) {
      INFO(shape.at("decoder").dump());
      CHECK(decoder.run(one.at("tokens")) == one.at("text").get<std::string>());
      ++cases;
    }
  }
  CHECK(cases >= 40);
}

TEST_CASE("A kind that is not known is refused only when something is to be decoded") {
  const Decoder decoder(json::parse(R"({"type": "CTC"})"));
  check_contains(error_of([&] { decoder.run({"a"}); }), "decoder type 'CTC' is not supported");
}

TEST_CASE("A decoder that lacks a part, or has too many, is refused") {
  const auto error = [](const json& decoder) {
    return error_of([&] { Decoder refused(decoder); });
  };
  check_contains(error({{"type", "Strip"}, {"content", " "}}), "decoder.start is missing");
  check_contains(error({{"type", "Strip"}, {"content", ""}}), "decoder.content is \"\", expected");
  json many = {{"type", "Sequence"}, {"decoders", json::array()}};
  for (int i = 0; i < 101; ++i) many["decoders"].push_back({{"type", "Fuse"}});
  check_contains(error(many), "decoder.decoders[100]: more than 100 steps");
}

TEST_CASE("Steps that let a text grow again and again are not finished") {
  const json step = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}};
  const Decoder decoder({{"type", "Sequence"}, {"decoders", json(60, step)}});
  check_contains(error_of([&] {
                   decoder.run({"a", "a"});
                 }),
                 "decoder: a text of 2 bytes grows beyond 4224");
  CHECK(decoder.run({"b"}) == "b");
}

}  // namespace zeroth::data::decoder_test
