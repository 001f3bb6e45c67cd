#include <cstdlib>

#include "configs/inspect.h"
#include "tests/configs/support.h"

namespace zeroth::configs::elasticity_test {
namespace {

using Json = nlohmann::ordered_json;

const Json kSmall = {{"enabled", true},
                     {"max_train_batch_size", 32},
                     {"micro_batch_sizes", {1, 2, 3, 7}},
                     {"version", 0.1}};

Json with(const Json& more, Json section = kSmall) {
  section.update(more);
  return section;
}

std::string file(const Json& section, const Json& top = Json::object()) {
  Json root = {{"elasticity", section}};
  root.update(top);
  return root.dump();
}

RunFacts on(int64_t ranks) {
  return {.world_size = ranks, .hidden_size = 64, .total_steps = 100};
}

std::string error_on(int64_t ranks, const Json& section, const Json& top = Json::object(),
                     const FlagValues& flags = {}) {
  return error_of(file(section, top), flags, on(ranks));
}

// The scheduler's word, for as long as this lives.
class Scheduler {
 public:
  explicit Scheduler(const std::string& text) {
    ::setenv("DEEPSPEED_ELASTICITY_CONFIG", text.c_str(), 1);
  }
  ~Scheduler() { ::unsetenv("DEEPSPEED_ELASTICITY_CONFIG"); }
};

std::string error_with_scheduler(const std::string& text) {
  const Scheduler scheduler(text);
  try {
    resolve(load(file(kSmall)), {}, on(4));
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("elasticity chooses the batch by the number of data ranks") {
  const Resolved four = resolve_text(file(kSmall), {}, on(4));
  CHECK(four.config.batch.train_batch_size == 24);
  CHECK(four.config.batch.micro_batch_size == 3);
  CHECK(four.config.batch.accumulation_steps == 2);
  CHECK(four.origins.at("train_batch_size") == "elasticity, for 4 ranks");
  CHECK(has_note(four,
                 "elasticity: a global batch of 24, micro-batches of 3, 2 per step on 4 ranks; "
                 "valid numbers of data ranks: 1, 2, 3, 4, 6, 8, 12, 24"));
  CHECK(resolve_batch(parse_text(file(kSmall), "test.json"), {}, 12).micro_batch_size == 2);
  const Json split = {{"tensor_parallel", {{"autotp_size", 2}}}};
  CHECK(config_of(file(kSmall, split), {}, on(8)).batch.micro_batch_size == 3);
  CHECK(error_on(7, kSmall) ==
        "test.json: elasticity: the batch of 24 cannot be split evenly over 7 ranks: start 1, 2, "
        "3, 4, 6, "
        "8, 12, 24");
  CHECK(error_on(10, kSmall, split).find("cannot be split evenly over 5 data ranks: start") !=
        std::string::npos);
}

TEST_CASE("of whole nodes version 0.2 chooses, the default") {
  const Json large = {{"enabled", true},
                      {"max_train_batch_size", 10'000},
                      {"micro_batch_sizes", {8, 12, 16, 17}},
                      {"min_gpus", 32},
                      {"max_gpus", 1500},
                      {"num_gpus_per_node", 8},
                      {"model_parallel_size", 4}};
  const Json split = {{"tensor_parallel", {{"autotp_size", 4}}}};
  const Resolved two_nodes = resolve_text(file(large, split), {}, on(16));
  CHECK(two_nodes.config.batch.train_batch_size == 9996);
  CHECK(two_nodes.config.batch.micro_batch_size == 17);
  CHECK(two_nodes.config.batch.accumulation_steps == 147);
  CHECK(error_on(16, large) ==
        "test.json: elasticity.model_parallel_size: 4, but --tensor-parallel 1: make them equal");
  CHECK(error_on(16, with({{"model_parallel_size", 1}}, large), split).find("make them equal") !=
        std::string::npos);
  CHECK(error_on(32, with({{"model_parallel_size", 16}}, large),
                 {{"tensor_parallel", {{"autotp_size", 16}}}}) ==
        "test.json: elasticity: 8 ranks of a node cannot be divided into tensor-parallel groups of "
        "16");
}

TEST_CASE("what DeepSpeed refuses is refused, by its key") {
  struct Row {
    Json change;
    const char* begin;
  };
  const Row rows[] = {
      {{{"micro_batch_sizes", {1, 4, -1, 2, -10}}},
       "elasticity.micro_batch_sizes: expected a list of integers in 1..1000000, found the list"},
      {{{"micro_batch_sizes", 5}},
       "elasticity.micro_batch_sizes: expected a list of integers, found 5"},
      {{{"micro_batch_sizes", {"a", nullptr, 0.5}}},
       "elasticity.micro_batch_sizes: expected a list of integers, found the list"},
      {{{"micro_batch_sizes", {2, 0.5, 4}}},
       "elasticity.micro_batch_sizes: expected a list of integers, found the list"},
      {{{"micro_batch_sizes", Json::array()}},
       "elasticity.micro_batch_sizes: expected 1 to 64 sizes, found 0"},
      {{{"micro_batch_sizes", std::vector<int>(65, 1)}},
       "elasticity.micro_batch_sizes: expected 1 to 64 sizes, found 65"},
      {{{"micro_batch_sizes", {64}}},
       "elasticity: micro-batch 64 is larger than 32, the largest batch"},
      {{{"micro_batch_sizes", nullptr}}, "elasticity.micro_batch_sizes: missing: "},
      {{{"max_train_batch_size", nullptr}}, "elasticity.max_train_batch_size: missing: "},
      {{{"min_gpus", -1}}, "elasticity.min_gpus: expected an integer in 1..1000000, found -1"},
      {{{"max_gpus", -1}}, "elasticity.max_gpus: expected an integer in 1..1000000, found -1"},
      {{{"min_gpus", 9}, {"max_gpus", 8}}, "elasticity.max_gpus: 8 is below elasticity.min_gpus 9"},
      {{{"min_gpus", 33}},
       "elasticity.micro_batch_sizes: no batch of at most 32 can be split evenly over 4 ranks"},
      {{{"version", 0.3}}, "elasticity.version: expected 0.1 or 0.2, found 0.3"},
      {{{"model_parallel_size", 2}},
       "elasticity.model_parallel_size: 2 needs elasticity.version 0.2, found 0.1"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.change.dump());
    const std::string error = error_on(4, with(row.change));
    CHECK_MESSAGE(error.starts_with(std::string("test.json: ") + row.begin), error);
    CHECK(error.find('\n') == std::string::npos);
  }
}

TEST_CASE("a batch that is given beside it is an error, or without effect where the file says so") {
  const Json fixed = {{"train_batch_size", 32}, {"gradient_accumulation_steps", "auto"}};
  FlagValues flags;
  flags.micro_batch = 2;
  CHECK(error_on(4, kSmall, fixed, flags) ==
        "test.json: 2 errors\n"
        "  train_batch_size: 32, but elasticity chooses it: leave one of them out, or set "
        "elasticity.ignore_non_elastic_batch_info to true\n"
        "  --micro-batch: 2, but elasticity chooses it: leave one of them out, or set "
        "elasticity.ignore_non_elastic_batch_info to true");
  const Resolved ignored =
      resolve_text(file(with({{"ignore_non_elastic_batch_info", true}}), fixed), flags, on(4));
  CHECK(ignored.config.batch.train_batch_size == 24);
  CHECK(ignored.origins.at("train_batch_size") == "elasticity, for 4 ranks");
  CHECK(ignored.origins.at("gradient_accumulation_steps") == "auto: elasticity, for 4 ranks");
  CHECK(has_warning(ignored, "train_batch_size 32 has no effect: elasticity chooses it"));
  CHECK(has_warning(ignored, "--micro-batch 2 has no effect: elasticity chooses it"));
}

TEST_CASE("what is chosen is printed as a batch that is given") {
  const Config config = config_of(file(kSmall), {}, on(4));
  const std::string text = to_json(config);
  CHECK(text.find("elasticity") == std::string::npos);
  CHECK(to_json(config_of(text, {}, on(4))) == text);
}

TEST_CASE("a section that is off may say what it likes, under names that exist") {
  CHECK(error_on(2, with({{"enabled", false}, {"version", "x"}, {"micro_batch_sizes", 5}})) == "");
  CHECK(error_on(2, {{"enabled", false}, {"micro_batch_size", 5}}) ==
        "test.json: elasticity.micro_batch_size: unknown key; did you mean "
        "elasticity.micro_batch_sizes?");
  CHECK(error_on(2, {{"enabled", 1}}).find("elasticity.enabled: expected true or false") !=
        std::string::npos);
}

TEST_CASE("a scheduler's copy of the section has to be the same") {
  CHECK(error_with_scheduler("") == "");
  CHECK(error_with_scheduler(kSmall.dump()) == "");
  CHECK(error_with_scheduler(with({{"max_train_batch_size", 33}}).dump()) ==
        "inline configuration: elasticity.max_train_batch_size: 32 in the file, but environment "
        "variable DEEPSPEED_ELASTICITY_CONFIG has 33: make them equal");
  CHECK(error_with_scheduler(R"({"max_train_batch_size": 32, "micro_batch_sizes": [1, 2]})") ==
        "inline configuration: 2 errors\n"
        "  elasticity.micro_batch_sizes: [1,2,3,7] in the file, but environment variable "
        "DEEPSPEED_ELASTICITY_CONFIG has [1,2]: make them equal\n"
        "  elasticity.version: 0.1 in the file, but environment variable "
        "DEEPSPEED_ELASTICITY_CONFIG has 0.2: make them equal");
  CHECK(error_with_scheduler("{").find("environment variable DEEPSPEED_ELASTICITY_CONFIG:1:") !=
        std::string::npos);
  CHECK(error_with_scheduler("[]").find("has null") != std::string::npos);
}

TEST_CASE("check-config checks for ranks that the section allows") {
  const auto found = [](const std::string& text) {
    return inspect(parse_text(text, "t.json"), {});
  };
  const Inspection small = found(file(with({{"min_gpus", 3}})));
  CHECK(small.errors.empty());
  CHECK(contains(small.notes, "a global batch of 24, micro-batches of 2, 4 per step on 3 ranks") !=
        contains(small.notes, "a global batch of 24, micro-batches of 1, 8 per step on 3 ranks"));
  const Inspection nodes = found(file(with({{"version", 0.2}, {"num_gpus_per_node", 4}})));
  CHECK(nodes.errors.empty());
  CHECK(contains(nodes.notes, "on 4 ranks"));
  CHECK(inspect(parse_text(file(kSmall), "t.json"), 7).errors.size() == 1);
}

}  // namespace zeroth::configs::elasticity_test
