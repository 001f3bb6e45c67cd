// Every key of DeepSpeed's schema, as tools/make_config_fixtures.py has asked DeepSpeed for them,
// has a fate here.
#include <algorithm>
#include <map>
#include <set>

#include "base/json/json.h"
#include "configs/schema/check.h"
#include "tests/configs/support.h"

namespace zeroth::configs::deepspeed_keys_test {
namespace {

using Json = nlohmann::ordered_json;

const Json& schema() {
  static const Json read = Json::parse(read_source("tests/configs/fixtures/deepspeed_keys.json"));
  return read;
}

// What is said where the file gives a key another value than the default.
enum class Fate { kDoes, kNote, kRefused, kNone };

std::string in_table(const std::string& path) {
  const Alias* alias = find_alias(path);
  if (alias != nullptr) return std::string(alias->path);
  const size_t dot = path.rfind('.');
  if (find_key(path) != nullptr || dot == std::string::npos) return path;
  return in_table(path.substr(0, dot)) + path.substr(dot);
}

// Within a section that is refused while it is on, or idle.
bool is_inside(const ConfigKey& section, const std::string& path) {
  if (section.allowed_keys.empty() && section.state != KeyState::kRefused) return false;
  if (!path.starts_with(std::string(section.path) + ".")) {
    return false;
  }
  const std::string below = path.substr(section.path.size() + 1);
  std::vector<std::string_view> known = split_values(section.allowed_keys, ' ');
  for (const Switch& one : parse_switches(section)) known.push_back(one.name);
  return std::any_of(known.begin(), known.end(), [&](std::string_view name) {
    const bool all = name.ends_with("*") && below.starts_with(name.substr(0, name.size() - 1));
    return all || below == name || name == below + ".*";
  });
}

Fate fate_of(const std::string& path) {
  if (const ConfigKey* key = find_key(in_table(path))) {
    return key->state == KeyState::kHonored    ? Fate::kDoes
           : key->state == KeyState::kNoEffect ? Fate::kNote
                                               : Fate::kRefused;
  }
  const auto section = std::find_if(keys().begin(), keys().end(), [&](const ConfigKey& key) {
    return key.field.type == KeyType::kSection && is_inside(key, in_table(path));
  });
  if (section == keys().end()) return Fate::kNone;
  return section->state == KeyState::kRefused ? Fate::kRefused : Fate::kNote;
}

// In sections that are refused whatever they say, or on without a switch.
bool is_on_by_itself(const std::string& path) {
  return path.starts_with("checkpoint.writer.") || path == "weight_quantization.enabled" ||
         path.starts_with("zero_optimization.zenflow.");
}

// Where a value that a file leaves out is another one here, and docs/config.md says so; or where
// the table has no number for it.
const std::map<std::string, std::string> kOwnDefaults = {
    {"aio.intra_op_parallelism", "8"},
    {"aio.queue_depth", "32"},
    {"checkpoint.tag_validation", "\"Warn\""},
    {"pipeline.stages", "1"},
    {"zero_optimization.leaf_module.classes", "[]"},
    {"zero_optimization.offload_optimizer.pipeline_read", "true"},
    {"zero_optimization.offload_optimizer.pipeline_write", "true"},
    {"zero_optimization.offload_param.buffer_size", "null"},
    {"zero_optimization.overlap_comm", "true"},
    {"zero_optimization.gather_16bit_weights_on_model_save", "false"},
};

std::string typed_file(const std::string& section, const std::string& type, const Json& params) {
  return Json{{section, {{"type", type}, {"params", params}}}}.dump();
}

}  // namespace

TEST_CASE("every key of DeepSpeed's schema is done, noted or refused") {
  std::map<Fate, int> count;
  for (const Json& row : schema()["keys"]) {
    const std::string path = row[0];
    CAPTURE(path);
    const Fate fate = fate_of(path);
    CHECK(fate != Fate::kNone);
    ++count[fate];
  }
  CHECK(count[Fate::kDoes] > 100);
  CHECK(count[Fate::kNote] > 40);
  CHECK(count[Fate::kRefused] > 130);
}

TEST_CASE("DeepSpeed's defaults may be written out, and are those of the table") {
  const std::set<std::string> removed(schema()["removed"].begin(), schema()["removed"].end());
  for (const Json& row : schema()["keys"]) {
    const std::string path = row[0];
    if (row.size() == 1 || removed.count(path) > 0) continue;
    CAPTURE(path);
    const Json& value = row[1];
    const bool ours = path == "zero_optimization.overlap_comm";  // null: by the stage
    if (!ours && !is_on_by_itself(path)) CHECK(complaints_of(nested(path, value.dump())) == "");
    const ConfigKey* key = find_key(in_table(path));
    if (key == nullptr || key->field.type == KeyType::kSection) continue;
    const auto own = kOwnDefaults.find(path);
    const Json expected = own == kOwnDefaults.end() ? value : parse_trusted_json(own->second);
    CHECK(parse_trusted_json(key->default_value) == expected);
  }
}

TEST_CASE("what DeepSpeed has removed is refused, and said to be gone") {
  for (const std::string path : schema()["removed"]) {
    if (path == "elasticity") continue;  // its batch arithmetic is done here
    CAPTURE(path);
    const ConfigKey* key = find_key(path);
    REQUIRE(key != nullptr);
    CHECK(key->state == KeyState::kRefused);
    const std::string on =
        key->field.type == KeyType::kSection ? R"({"enabled": true})" : R"("something")";
    CHECK(complaints_of(nested(path, on)).find("not supported, as in DeepSpeed") !=
          std::string::npos);
  }
}

TEST_CASE("every optimizer that DeepSpeed takes is there with its parameters, or refused by name") {
  FlagValues flags;
  int taken = 0;
  for (const Json& row : schema()["optimizers"]) {
    const std::string name = row[0];
    CAPTURE(name);
    const std::string bare = error_of(typed_file("optimizer", name, Json::object()));
    if (!bare.empty()) {
      CHECK(bare.starts_with("test.json: optimizer.type: " + name + " is not supported yet; "));
      continue;
    }
    ++taken;
    for (const Json& param : row[1]) {
      CAPTURE(param.dump());
      const std::string key = param[0];
      CHECK(find_key("optimizer.params." + key) != nullptr);
      CHECK(error_of(typed_file("optimizer", name, {{key, param[1]}})) == "");
    }
  }
  CHECK(taken == 6);
}

TEST_CASE("every schedule of DeepSpeed is there with its parameters") {
  for (const Json& row : schema()["schedulers"]) {
    const std::string name = row[0];
    CAPTURE(name);
    Json required = Json::object();
    for (const Json& param : row[1]) {
      if (param.size() == 1) required[param[0].get<std::string>()] = 1;
    }
    CHECK(error_of(typed_file("scheduler", name, required)) == "");
    for (const Json& param : row[1]) {
      if (param.size() == 1) continue;
      CAPTURE(param.dump());
      Json params = required;
      params[param[0].get<std::string>()] = param[1];
      CHECK(error_of(typed_file("scheduler", name, params)) == "");
    }
  }
}

}  // namespace zeroth::configs::deepspeed_keys_test
