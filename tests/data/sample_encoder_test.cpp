#include "data/samples/sample_encoder.h"

#include "tests/data/data_test_support.h"

namespace zeroth::data::sample_encoder_test {
namespace {

using nlohmann::ordered_json;

const Tokenizer& llama() {  // a text begins with 0 and ends with 1
  static const Tokenizer tokenizer = Tokenizer::load(fixture("llama3"));
  return tokenizer;
}

DatasetOptions options_for(const Tokenizer& tokenizer) {
  return {.path = "t.jsonl",
          .tokenizer = &tokenizer,
          .seq_len = 64,
          .vocab_size = tokenizer.vocab_size()};
}

std::string trained(const Tokenizer& tokenizer, const TokenRecord& sample) {
  std::string text;
  for (size_t i = 0; i < sample.ids.size(); ++i) {
    if (sample.trained[i]) text += tokenizer.decode(std::span(&sample.ids[i], 1));
  }
  return text;
}

TextRecord pair(const char* prompt, const char* completion) {
  return {.parts = {{.text = prompt, .trained = false}, {.text = completion, .trained = true}},
          .is_complete = false};
}

}  // namespace

TEST_CASE("A text is trained whole, a pair from its completion on, each to its end") {
  const DatasetOptions options = options_for(llama());
  SampleEncoder encoder(options);
  const TokenRecord text = encoder.encode(TextRecord{.parts = {{.text = "the fox"}}});
  CHECK(text.ids.front() == 0);
  CHECK(text.ids.back() == 1);
  CHECK(std::ranges::count(text.trained, false) == 0);
  const TokenRecord sample = encoder.encode(pair("the fox", " jumps"));
  CHECK(sample.ids.front() == 0);
  CHECK(sample.ids.back() == 1);
  CHECK(trained(llama(), sample) == " jumps" + llama().decode(std::vector<int32_t>{1}));
}

TEST_CASE("A token that crosses the boundary belongs to the completion") {
  const Tokenizer gpt2 = Tokenizer::load(fixture("gpt2"));
  DatasetOptions options = options_for(gpt2);
  const auto pieces = [&] {
    SampleEncoder encoder(options);
    encoder.encode(pair("the", " the"));
    const TokenRecord sample = encoder.encode(pair("the ", "the"));
    RecordFacts facts;
    encoder.store_counts(facts);
    CHECK(facts.merged_boundaries == (options.version == 2 ? 0 : 1));
    return std::pair(sample.ids.size(), trained(gpt2, sample));
  };
  const auto [joined, words] = pieces();
  CHECK(words.starts_with(" the"));
  options.version = 2;  // encoded separately
  const auto [apart, own] = pieces();
  CHECK(apart > joined);
  CHECK(own.starts_with("the"));
}

TEST_CASE("Everything is trained where all is asked for") {
  DatasetOptions options = options_for(llama());
  options.records.pairs_train_on = TrainOn::kAll;
  SampleEncoder encoder(options);
  const TokenRecord sample = encoder.encode(pair("the fo", "x jumps"));
  CHECK(std::ranges::count(sample.trained, false) == 0);
  RecordFacts facts;
  encoder.store_counts(facts);
  CHECK(facts.merged_boundaries == 0);
}

TEST_CASE("Segments have the special tokens that they were written with, and no others") {
  const DatasetOptions options = options_for(llama());
  TextRecord segments = pair("the fox", " jumps");
  segments.is_complete = true;
  const TokenRecord sample = SampleEncoder(options).encode(segments);
  CHECK(sample.ids == llama().encode("the fox jumps"));
  CHECK(trained(llama(), sample) == " jumps");
}

TEST_CASE("Token ids are kept, and must be the model's") {
  const DatasetOptions options = options_for(llama());
  SampleEncoder encoder(options);
  const TokenRecord sample = encoder.encode(TokenRecord{.ids = {5, 6}, .trained = {false, true}});
  CHECK(sample.ids == std::vector<int32_t>{5, 6});
  CHECK(sample.trained == std::vector<bool>{false, true});
  check_contains(
      error_of([&] { encoder.encode(TokenRecord{.ids = {999'999}, .trained = {true}}); }),
      "token id 999999, but the model's vocabulary has");
}

TEST_CASE("A conversation is rendered with the model's template, or with the one that is named") {
  TempFolder model;
  DatasetOptions options = options_for(llama());
  options.model_dir = model.path();
  ChatRecord chat{.messages = {{{"role", "user"}, {"content", "the fox"}},
                               {{"role", "assistant"}, {"content", " jumps"}}},
                  .tools = nullptr,
                  .losses = {MessageLoss::kDefault, MessageLoss::kDefault}};
  check_contains(error_of([&] { SampleEncoder(options).encode(chat); }), "has no chat template");
  model.write("chat_template.jinja", "{% for m in messages %}{{ m.content }}{% endfor %}");
  CHECK(SampleEncoder(options).encode(chat).ids == llama().encode("the fox jumps"));
  options.records.chat_template =
      model.write("own.jinja", "{% for m in messages %}{{ m.content + x }}{% endfor %}");
  options.records.chat_template_kwargs = R"({"x": "!"})";
  SampleEncoder encoder(options);
  CHECK(encoder.encode(chat).ids == llama().encode("the fox! jumps!"));
  // The template cannot place parts.
  chat.messages[0]["content"] = {{{"type", "text"}, {"text", "the"}},
                                 {{"type", "text"}, {"text", " fox"}}};
  CHECK(encoder.encode(chat).ids == llama().encode("the fox! jumps!"));
  RecordFacts stats{.fields = "messages"};
  encoder.store_counts(stats);
  CHECK(stats.joined_parts == 1);
  CHECK(stats.turns == 2);
  check_contains(stats.fields, "messages|assistant|");
  check_contains(stats.fields, R"({"x":"!"})");
}

}  // namespace zeroth::data::sample_encoder_test
