#include "trainer/samples.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>
#include <string>

#include "tests/trainer/flag_line.h"
#include "tests/trainer/workbench.h"
#include "trainer/run_plan.h"

namespace zeroth::trainer::samples_test {
namespace {

using Lines = std::vector<std::string>;

// `line` with names in the workbench's folder written as @name.
RunPlan plan(const Workbench& bench, std::string line) {
  for (size_t at = 0; (at = line.find('@')) != std::string::npos;) {
    line.replace(at, 1, (bench / "").string());
  }
  return make_plan(parse_line(line), 1);
}

// Those about samples: that nothing is kept without --output is another one.
Lines warnings_of(const RunPlan& plan) {
  Lines lines;
  for (const configs::Diagnostic& note : plan.notes) {
    const bool of_samples = note.key != "--output";
    if (note.kind == configs::Diagnostic::Kind::kWarning && of_samples) lines.push_back(note.text);
  }
  return lines;
}

bool has_note(const RunPlan& plan, const std::string& part) {
  for (const std::string& note : diagnostic_lines(plan.notes, configs::Diagnostic::Kind::kNote)) {
    if (has(note, part)) return true;
  }
  return false;
}

// Two texts, one of which is longer than 16 positions.
void write_texts(const Workbench& bench) {
  bench.write("texts.jsonl",
              fmt::format("{{\"text\": \"one\"}}\n{{\"text\": \"{}\"}}", std::string(100, 'x')));
}

}  // namespace

TEST_CASE("a length in which most samples are lost is warned of") {
  const Workbench bench;
  const std::string lengthy(100, 'x');
  std::string lines = R"({"prompt": "one", "completion": "two"})";
  for (int i = 0; i < 2; ++i) {
    lines += fmt::format("\n{{\"prompt\": \"{}\", \"completion\": \"two\"}}", lengthy);
  }
  bench.write("long.jsonl", lines);
  const std::string line = "--model @model --data @long.jsonl --micro-batch 1 --seq-len ";
  const auto warnings = warnings_of(plan(bench, line + "16"));
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0].ends_with(
      "long.jsonl: 2 of 3 samples are dropped, nothing to train within 16 positions: raise "
      "--seq-len"));
  CHECK(warnings_of(plan(bench, line + "128")).empty());
  for (int i = 0; i < 4; ++i) lines += "\n{\"prompt\": \"one\", \"completion\": \"two\"}";
  bench.write("long.jsonl", lines);
  const auto few = warnings_of(plan(bench, line + "16"));
  REQUIRE(few.size() == 2);
  CHECK(has(few[0], "long.jsonl: 2 of 7 samples are dropped"));
}

TEST_CASE("characters that the tokenizer has no token for are counted in a warning") {
  const Workbench bench;
  std::string tokenizer = bench.read("model/tokenizer.json");
  const std::string token = R"("\u010b":)";  // of byte 11
  REQUIRE(tokenizer.find(token) != std::string::npos);
  tokenizer.replace(tokenizer.find(token), token.size(), R"("another":)");
  bench.write("model/tokenizer.json", tokenizer);
  bench.write("odd.jsonl", R"({"text": "one\u000btwo\u000b"})");
  const auto made = plan(bench, "--model @model --data @odd.jsonl --micro-batch 1 --seq-len 16");
  const auto warnings = warnings_of(made);
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0].ends_with("tokenizer.json: 2 characters of the data have no token: left out"));
}

TEST_CASE("texts whose ends are cut off are warned of beyond one token in a hundred") {
  const Workbench bench;
  write_texts(bench);
  const std::string line = "--model @model --data @texts.jsonl --micro-batch 1 --seq-len ";
  const RunPlan cut = plan(bench, line + "16");
  const data::DatasetStats stats = cut.samples.train->stats();
  REQUIRE(stats.lost_tokens > 0);
  REQUIRE(warnings_of(cut).size() == 1);
  CHECK(warnings_of(cut)[0].ends_with(fmt::format(
      "texts.jsonl: {:.0f} % of the tokens ({} of {}) are cut off, beyond 16 positions: "
      "--long-text chunk keeps all, or raise --seq-len",
      100.0 * static_cast<double>(stats.lost_tokens) /
          static_cast<double>(stats.lost_tokens + stats.tokens),
      stats.lost_tokens, stats.lost_tokens + stats.tokens)));
  CHECK(warnings_of(plan(bench, line + "16 --long-text chunk")).empty());
  CHECK(warnings_of(plan(bench, line + "128")).empty());
}

TEST_CASE("one lost token in a hundred is no warning, one more is") {
  const Workbench bench;
  const std::string line = "--model @model --data @texts.jsonl --micro-batch 1 --seq-len ";
  write_texts(bench);
  const auto tokens = plan(bench, line + "128").samples.train->stats().tokens;
  std::string many;  // short texts beside the long one, which is cut by its last token
  for (int i = 0; i < 2 * tokens; ++i) many += "{\"text\": \"one\"}\n";
  bench.write("texts.jsonl", many + bench.read("texts.jsonl"));
  const int64_t longest = plan(bench, line + "128").samples.train->length(2 * tokens + 1);
  CHECK(plan(bench, fmt::format("{}{}", line, longest - 1)).samples.train->stats().truncated == 1);
  CHECK(warnings_of(plan(bench, fmt::format("{}{}", line, longest - 1))).empty());
}

TEST_CASE("pairs that are cut are not told of --long-text, which does nothing for them") {
  const Workbench bench;
  bench.write("pairs.jsonl", fmt::format("{{\"prompt\": \"one\", \"completion\": \"{}\"}}",
                                         std::string(100, 'x')));
  const std::string line = "--model @model --data @pairs.jsonl --micro-batch 1 --seq-len 16";
  REQUIRE(warnings_of(plan(bench, line)).size() == 1);
  CHECK(has(warnings_of(plan(bench, line))[0],
            "pairs.jsonl: of 1 sample, 1 is cut within what is trained, without"));
  const Lines reported = warnings_of(plan(bench, line + " --long-text chunk"));
  REQUIRE(reported.size() == 2);
  CHECK(reported[1].ends_with(
      "pairs.jsonl: --long-text chunk: no effect, the records are prompts and "
      "completions and each is a sample"));
}

TEST_CASE("a line spelled for run_clm.py joins texts as that does, unless --long-text says cut") {
  const Workbench bench;
  write_texts(bench);
  const std::string line = "--model_name_or_path @model --per_device_train_batch_size 1 ";
  const RunPlan joined = plan(bench, line + "--data @texts.jsonl --block_size 16");
  CHECK(joined.samples.train->stats().chunked);
  CHECK(has_note(joined,
                 "texts.jsonl: the texts are joined and cut into windows, as run_clm.py does; "
                 "--long-text cut uses each alone"));
  CHECK(
      plan(bench, line + "--train_file @texts.jsonl --seq-len 16").samples.train->stats().chunked);
  const RunPlan cut =
      plan(bench, line + "--train-file @texts.jsonl --block-size 16 --long-text cut");
  CHECK_FALSE(cut.samples.train->stats().chunked);
  CHECK(cut.samples.train->size() == 2);
  CHECK_FALSE(
      plan(bench, line + "--data @texts.jsonl --max_seq_length 16").samples.train->stats().chunked);
}

TEST_CASE("a note shows where prompt and completion meet, and what separates them") {
  const Workbench bench;
  bench.write("named.jsonl", R"({"q": "in May?", "a": "Natalia"})");
  bench.write("pair.jsonl", R"({"prompt": "in May?", "completion": "Natalia"})");
  const std::string line = "--model @model --micro-batch 1 --data ";
  CHECK(has_note(plan(bench, line + "@qa.jsonl"),
                 "'answer' is trained, joined as in \"count to 0:\\n 0\"; --prompt-field"));
  const std::string named = line + "@named.jsonl --prompt-field q --completion-field a ";
  CHECK(has_note(plan(bench, named),
                 "'a' is trained, joined as in \"in May?\\nNatalia\"; --prompt-field"));
  CHECK_FALSE(has_note(plan(bench, named + "--separator x"), "joined as in"));
  CHECK(has_note(plan(bench, line + "@pair.jsonl"), "joined as in \"in May?Natalia\""));
  std::vector<std::string> glued = {"--model", (bench / "model").string(),    "--micro-batch", "1",
                                    "--data",  (bench / "qa.jsonl").string(), "--separator",   ""};
  CHECK(has_note(make_plan(parse_flags(glued), 1), "joined as in \"count to 0: 0\""));
}

namespace {

// Two conversations, and a template for them.
void write_chats(const Workbench& bench) {
  bench.write("chats.jsonl",
              R"({"messages": [{"role": "user", "content": "Hi"},)"
              R"( {"role": "assistant", "content": "Yes"}]})"
              "\n"
              R"({"messages": [{"role": "system", "content": "Be kind"},)"
              R"( {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "No"}]})");
  bench.write("t.jinja",
              "{% for m in messages %}{% if m.role != 'system' %}{{ m.role + ':' + m.content }}"
              "{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}{% endif %}{% endfor %}");
}

}  // namespace

TEST_CASE("the assistant's turns of a conversation are trained, as a note says") {
  const Workbench bench;
  write_chats(bench);
  const std::string line =
      "--model @model --data @chats.jsonl --micro-batch 1 --chat-template @t.jinja ";
  const RunPlan usual = plan(bench, line);
  CHECK(has_note(usual, "the assistant's turns are trained"));
  CHECK(warnings_of(usual) == Lines{(bench / "chats.jsonl").string() +
                                    ": the template leaves out the words of content of role system "
                                    "in 1 message"});
  const data::DatasetStats stats = usual.samples.train->stats();
  CHECK(stats.turns == 2);
  CHECK(stats.turns_without_end == 0);
  CHECK(stats.num_label_tokens < stats.tokens);
  const RunPlan all = plan(bench, line + "--assistant_only_loss False");
  CHECK_FALSE(has_note(all, "the assistant's turns are trained"));
  CHECK(all.samples.train->stats().num_label_tokens == all.samples.train->stats().tokens);
  CHECK_THROWS_WITH_AS(plan(bench, "--model @model --data @chats.jsonl --micro-batch 1"),
                       doctest::Contains("has no chat template"), Error);
}

TEST_CASE("--packing puts samples into rows, the first ones if not all are asked for") {
  const Workbench bench;
  const std::string line = "--model @model --data @qa.jsonl --micro-batch 1 --packing ";
  const RunPlan packed = plan(bench, line);
  CHECK(packed.samples.train->size() < 13);
  CHECK(packed.samples.train->stats().samples == 13);
  CHECK(has_note(packed, "13 samples are in "));
  CHECK(plan(bench, line + "--max_train_samples 4").samples.train->stats().samples == 4);
  CHECK(has_note(plan(bench, "--model @model --data @train.bin --micro-batch 1 --packing"),
                 "fill their rows already"));
}

TEST_CASE("samples that are left out, tokens of two parts and special tokens in words are noted") {
  const Workbench bench;
  write_chats(bench);
  const std::string line = "--model @model --micro-batch 1 --chat-template @t.jinja --data @";
  bench.write("odd.jsonl", R"({"messages": [{"role": "user", "content": "a<|endoftext|>b"},)"
                           R"( {"role": "assistant", "content": "c"}]})");
  const RunPlan odd = plan(bench, line + "odd.jsonl");
  REQUIRE(warnings_of(odd).size() == 1);
  CHECK(has(warnings_of(odd)[0], "odd.jsonl: the words of 1 message hold special tokens"));
  CHECK_FALSE(has_note(odd, "only the beginning"));
  CHECK(has_note(plan(bench, line + "chats.jsonl --max_train_samples 1"),
                 "only the beginning of each file of --data is used, at most 1 sample"));
  bench.write("pairs.jsonl", R"({"prompt": "in May ", "completion": "the end"})");
  const RunPlan joined = plan(bench, "--model @model --micro-batch 1 --data @pairs.jsonl");
  CHECK(joined.samples.train->stats().merged_boundaries == 1);
  CHECK(has_note(joined, "in 1 record a token has bytes of both prompt and completion"));
}

TEST_CASE("a note says that pairs beside a chat template are trained without it") {
  const Workbench bench;
  write_chats(bench);
  const std::string line = "--model @model --micro-batch 1 --data @";
  CHECK_FALSE(has_note(plan(bench, line + "qa.jsonl"), "without the model's chat template"));
  const RunPlan named = plan(bench, line + "qa.jsonl --chat-template @t.jinja");
  REQUIRE(warnings_of(named).size() == 1);
  CHECK(has(warnings_of(named)[0], "its records are texts: --chat-template has no effect"));
  bench.write("model/chat_template.jinja", bench.read("t.jinja"));
  CHECK(has_note(plan(bench, line + "qa.jsonl"), "without the model's chat template"));
  const RunPlan chats =
      plan(bench, line +
                      "qa.jsonl --data-format query-response --prompt-field question "
                      "--completion-field answer");
  CHECK(has_note(chats, "query-response"));
  CHECK_FALSE(has_note(chats, "without the model's chat template"));
  CHECK(chats.samples.train->stats().chats);
}

TEST_CASE("a file in which everything would be trained, or no turn ends, is refused") {
  const Workbench bench;
  write_chats(bench);
  const std::string line = "--model @model --data @chats.jsonl --micro-batch 1 --chat-template @";
  bench.write("endless.jinja",
              "{% for m in messages %}{{ m.role + ': ' + m.content }}{% endfor %}");
  CHECK_THROWS_WITH_AS(plan(bench, line + "endless.jinja"),
                       doctest::Contains("writes no token that ends an assistant's turn"), Error);
  const Lines warnings = warnings_of(plan(bench, line + "endless.jinja --train-on all"));
  REQUIRE(warnings.size() == 1);
  CHECK(has(warnings[0], "2 of 2 trained turns have no token that ends them"));
  bench.write("full.jinja",
              "{% for m in messages %}{% generation %}{{ m.content + '<|endoftext|>' }}"
              "{% endgeneration %}{% endfor %}");
  CHECK_THROWS_WITH_AS(plan(bench, line + "full.jinja"),
                       doctest::Contains("every token of every chat would be trained"), Error);
  CHECK_NOTHROW(plan(bench, line + "full.jinja --train-on all"));
}

TEST_CASE("a run on conversations, packed, saves the template that it was given") {
  const Workbench bench;
  write_chats(bench);
  const auto run = bench.finetune(
      "--model model --data chats.jsonl --eval-data chats.jsonl --chat-template t.jinja --steps 1 "
      "--micro-batch 1 --packing --output out --metrics m.jsonl");
  REQUIRE_MESSAGE(run.code == 0, run.out << run.err);
  CHECK(bench.read("out/chat_template.jinja") == bench.read("t.jinja"));
  const auto apart = bench.finetune(
      "--model model --eval-data chats.jsonl --do_train False --chat-template t.jinja "
      "--metrics apart.jsonl --eval-micro-batch 2");
  REQUIRE_MESSAGE(apart.code == 0, apart.out << apart.err);
  const auto together = bench.finetune(
      "--model model --eval-data chats.jsonl --do_train False --chat-template t.jinja "
      "--metrics together.jsonl --packing");
  REQUIRE_MESSAGE(together.code == 0, together.out << together.err);
  const auto loss = [&](const char* file) {
    return bench.evaluations(file).front().at("eval_loss").get<double>();
  };
  CHECK(loss("together.jsonl") == doctest::Approx(loss("apart.jsonl")).epsilon(1e-6));
}

TEST_CASE("double_bos: texts with tokens of their own are counted in a note") {
  const Workbench bench;
  bench.write("ended.jsonl", "{\"text\": \"one<|endoftext|>\"}\n{\"text\": \"two\"}\n");
  bench.write("plain.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n");
  const std::string line = "--model @model --micro-batch 1 --data ";
  const RunPlan ended = plan(bench, line + "@ended.jsonl"),
                plain = plan(bench, line + "@plain.jsonl");
  CHECK(has_note(ended,
                 "ended.jsonl: of 2 texts, 1 end with the end token <|endoftext|>: no second "
                 "one is added to these"));
  CHECK_FALSE(has_note(plain, "end token"));
  CHECK(ended.samples.train->stats().tokens == plain.samples.train->stats().tokens);
}

TEST_CASE("joined_tail_dropped: every token of the windows is trained") {
  const Workbench bench;
  write_texts(bench);
  for (const int64_t length : {5, 16, 128}) {
    const RunPlan made =
        plan(bench, fmt::format("--model @model --data @texts.jsonl --micro-batch 1 "
                                "--seq-len {} --long-text chunk",
                                length));
    const data::DatasetStats stats = made.samples.train->stats();
    const data::DatasetStats apart =
        plan(bench, "--model @model --data @texts.jsonl --micro-batch 1").samples.train->stats();
    CHECK(stats.tokens == apart.tokens + 1);  // the first token of the second text is a target, too
    CHECK(stats.num_label_tokens == stats.tokens);
    CHECK(stats.lost_tokens == 0);
  }
}

TEST_CASE("--max_length counts tokens, as TRL does, --seq-len positions") {
  const Workbench bench;
  write_texts(bench);
  const std::string line = "--model @model --data @texts.jsonl --micro-batch 1 ";
  for (const char* flag :
       {"--max_length", "--max_seq_length", "--model_max_length", "--max-length"}) {
    const RunPlan made = plan(bench, fmt::format("{}{} 16", line, flag));
    CHECK_MESSAGE(made.samples.seq_len == 15, flag);
    CHECK(made.samples.train->length(1) == 15);  // 16 tokens, of which the first is no target
  }
  CHECK(plan(bench, line + "--block_size 16").samples.seq_len == 16);
  CHECK(plan(bench, line + "--max_length 17 --seq-len 16").samples.seq_len == 16);
  CHECK(has(usage_error_line("--model m --data d.bin --max_length 16 --seq-len 16"),
            "--seq-len 16 and --max_length 16 differ: give one of them"));
  CHECK(has(usage_error_line("--model m --data d.bin --max_length 1"),
            "--max_length 1: must be at least 2"));
  const RunPlan beyond = plan(bench, line + "--max_length 200");
  CHECK(has_note(beyond, "--max_length 200 exceeds the 128 positions"));
}

TEST_CASE("a run that goes on from an earlier version's checkpoint makes its samples as that did") {
  const Workbench bench;
  write_texts(bench);
  const auto open = [&](const std::string& line, int version) {
    const Flags flags = parse_line("--model " + (bench / "model").string() + " --data " +
                                   (bench / line).string() + " --micro-batch 1");
    configs::Diagnostics notes;
    const Datasets datasets =
        open_datasets(flags, {.vocab_size = 448, .seq_len = 16, .version = version}, notes);
    add_dataset_notes(flags, datasets, notes);
    return std::pair(datasets.train->stats(), diagnostic_lines(notes));
  };
  CHECK(open("qa.jsonl", 1).first.joint_example == "count to 0: 0");
  CHECK(open("qa.jsonl", 2).first.joint_example == "count to 0:\\n 0");
  bench.write("short.bin", std::string(2 * 20, '\1').substr(0, 40));
  const auto [stats, notes] = open("short.bin", 1);
  CHECK(stats.lost_tokens == 3);
  CHECK(has(notes.front(), "the samples are those of the earlier version that started the run"));
  CHECK(open("short.bin", 2).first.lost_tokens == 0);
}

}  // namespace zeroth::trainer::samples_test
