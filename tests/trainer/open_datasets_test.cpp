// How a run's data files become its datasets.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>
#include <string>

#include "tests/trainer/flag_line.h"
#include "tests/trainer/workbench.h"
#include "trainer/run_plan.h"

namespace zeroth::trainer::open_datasets_test {
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

// The consumed samples of a run's first steps, by their names.
std::multiset<std::string> first_samples(const RunPlan& plan, int64_t count) {
  std::multiset<std::string> names;
  const data::SampleOrder order = plan.sample_order();
  for (int64_t i = 0; i < count; ++i) {
    const std::string name = plan.samples.train->sample_name(order.at(i));
    names.insert(name.substr(name.rfind('/') + 1));
  }
  return names;
}

int64_t count_of(const std::multiset<std::string>& names, const std::string& file) {
  return std::ranges::count_if(names,
                               [&](const std::string& name) { return name.starts_with(file); });
}

}  // namespace

TEST_CASE("several files are trained together, each sample once in an epoch") {
  const Workbench bench;
  bench.write("more.jsonl", bench.read("qa.jsonl"));
  const RunPlan both = plan(bench, "--model @model --data @qa.jsonl @more.jsonl --micro-batch 1");
  CHECK(both.samples.train->size() == 26);
  CHECK(both.samples.total_steps == 26);
  const auto names = first_samples(both, 26);
  CHECK(std::set<std::string>(names.begin(), names.end()).size() == 26);
  CHECK(plan(bench, "--model @model --data @*.jsonl --micro-batch 1").samples.train->size() == 26);
  CHECK_THROWS_WITH_AS(plan(bench, "--model @model --data @qa.jsonl:1 @more.jsonl --micro-batch 1"),
                       doctest::Contains("give one to all or to none"), Error);
  CHECK_THROWS_WITH_AS(plan(bench, "--model @model --data @none*.jsonl --micro-batch 1"),
                       doctest::Contains("none*.jsonl"), Error);
}

TEST_CASE("entries of dataset_info.json are read with their own columns") {
  const Workbench bench;
  bench.write("lf.jsonl", "{\"q\": \"one\", \"a\": \"two\"}\n");
  bench.write("dataset_info.json",
              R"({"own": {"file_name": "lf.jsonl", "columns": {"prompt": "q", "response": "a"}},
                  "qa": {"file_name": "qa.jsonl",
                         "columns": {"prompt": "question", "response": "answer"}}})");
  bench.write("t.jinja", "{% for m in messages %}{{ m.content }}<|endoftext|>{% endfor %}");
  const std::string line = "--model @model --micro-batch 1 --chat-template @t.jinja ";
  const RunPlan both = plan(bench, line + "--dataset own,qa --dataset_dir @");
  CHECK(both.samples.train->size() == 14);
  const RunPlan mixed =
      plan(bench, line + "--data @dataset_info.json:own:1 @dataset_info.json:qa:13");
  CHECK(mixed.samples.train_size() == 14);
  CHECK_THROWS_WITH_AS(plan(bench, line + "--dataset other --dataset_dir @"),
                       doctest::Contains("dataset_info.json: "), Error);
}

TEST_CASE("weights are shares of the samples, and the first file used up ends the epoch") {
  const Workbench bench;
  bench.write("more.jsonl", bench.read("qa.jsonl"));
  const RunPlan mixed =
      plan(bench, "--model @model --data @qa.jsonl:0.7 @more.jsonl:0.3 --micro-batch 1 --epochs 3");
  const int64_t epoch = mixed.samples.train_size();
  CHECK(mixed.samples.total_steps == 3 * epoch);
  const auto names = first_samples(mixed, epoch);
  CHECK(count_of(names, "qa.jsonl") == 13);
  CHECK(std::abs(static_cast<double>(count_of(names, "more.jsonl")) - 13 * 0.3 / 0.7) <= 1);
  CHECK(std::set<std::string>(names.begin(), names.end()).size() == names.size());
  // Those that an epoch leaves out come first in the next ones.
  const auto later = first_samples(mixed, 3 * epoch);
  std::set<std::string> of_more;
  for (const std::string& name : later) {
    if (name.starts_with("more.jsonl")) of_more.insert(name);
  }
  CHECK(of_more.size() == std::min<size_t>(13, count_of(later, "more.jsonl")));
  CHECK(has_note(mixed, "the weights are shares of the records"));
}

TEST_CASE("--val-split sets samples aside, the same ones in every run") {
  const Workbench bench;
  const std::string line = "--model @model --data @qa.jsonl --micro-batch 1 --eval-every 5 ";
  const RunPlan split = plan(bench, line + "--val-split 0.25");
  CHECK(split.samples.train->size() == 10);
  REQUIRE(split.samples.eval_size() == 3);
  const RunPlan again = plan(bench, line + "--val-split 3 --seed 7");
  std::set<std::string> names;
  for (int64_t i = 0; i < 3; ++i) {
    CHECK(again.samples.eval->sample_name(i) == split.samples.eval->sample_name(i));
    names.insert(split.samples.eval->sample_name(i));
  }
  for (int64_t i = 0; i < 10; ++i) names.insert(split.samples.train->sample_name(i));
  CHECK(names.size() == 13);
  CHECK_THROWS_WITH_AS(plan(bench, line + "--val-split 13"),
                       doctest::Contains("leave at least one on each side"), Error);
  CHECK(has(usage_error_line("--model m --data d.jsonl --val-split 0.1 --eval-data e.jsonl"),
            "--val-split and --eval-data: give one of them"));
  CHECK(has(usage_error_line("--model m --data d.jsonl --val-split 1.5"),
            "--val-split 1.5: must be a fraction below 1 or a whole number of samples"));
}

TEST_CASE("--group-by-length: batches have samples of similar length") {
  const Workbench bench;
  const std::string line = "--model @model --data @qa.jsonl --micro-batch 1 ";
  const RunPlan grouped = plan(bench, line + "--group_by_length True");
  int64_t before = std::numeric_limits<int64_t>::max();
  for (int64_t i = 0; i < 13; ++i) {
    const int64_t length = grouped.samples.train->length(grouped.sample_order().at(i));
    CHECK(length <= before);
    before = length;
  }
  CHECK(first_samples(grouped, 13) == first_samples(plan(bench, line), 13));
}

TEST_CASE("bad records are skipped on request, and shown in a warning") {
  const Workbench bench;
  bench.write("bad.jsonl", bench.read("qa.jsonl") + "{\"question\": 1, \"answer\": \"2\"}\n");
  const std::string line = "--model @model --data @bad.jsonl --micro-batch 1 ";
  CHECK_THROWS_WITH_AS(plan(bench, line), doctest::Contains("bad.jsonl:14:"), Error);
  const Lines warnings = warnings_of(plan(bench, line + "--on-bad-record skip"));
  REQUIRE(warnings.size() == 2);
  CHECK(warnings[0].ends_with("bad.jsonl: 1 record skipped as not valid; the first ones are"));
  CHECK(has(warnings[1], "bad.jsonl:14:"));
}

TEST_CASE("the tokens of a large file are kept beside it, and a later run says that it has them") {
  const Workbench bench;
  std::string many;
  while (many.size() < size_t{1} << 20) many += bench.read("qa.jsonl");
  bench.write("many.jsonl", many);
  const std::string line = "--model @model --data @many.jsonl --micro-batch 1 ";
  CHECK(has_note(plan(bench, line), "tokens are kept in"));
  CHECK(has_note(plan(bench, line), "tokens are those of an earlier run"));
  CHECK(has_note(plan(bench, line + "--token-cache @own"), "tokens are kept in"));
  CHECK_FALSE(has_note(plan(bench, line + "--token-cache none"), "tokens are"));
}

TEST_CASE("tokens that were written are trained as their records") {
  const Workbench bench;
  const auto written = bench.finetune("--model model --data qa.jsonl --tokenize --output tokens");
  REQUIRE_MESSAGE(written.code == 0, written.out << written.err);
  CHECK(has(written.out, "tokens.bin: 13 sequences, "));
  const RunPlan records = plan(bench, "--model @model --data @qa.jsonl --micro-batch 1");
  const RunPlan tokens = plan(bench, "--model @model --data @tokens.bin --micro-batch 1");
  REQUIRE(tokens.samples.train->size() == 13);
  for (int64_t i = 0; i < 13; ++i) {
    const int64_t length = records.samples.train->length(i);
    REQUIRE(tokens.samples.train->length(i) == length);
    std::vector<int64_t> ids(length), targets(length), own_ids(length), own_targets(length);
    records.samples.train->fill(i, ids, targets);
    tokens.samples.train->fill(i, own_ids, own_targets);
    CHECK(own_ids == ids);
    CHECK(own_targets == targets);
  }
  CHECK(bench.finetune("--model model --data qa.jsonl --tokenize --output tokens").code != 0);
}

}  // namespace zeroth::trainer::open_datasets_test
