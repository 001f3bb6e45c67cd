#include "configs/key_rows.h"
#include "tests/configs/support.h"

namespace zeroth::configs {
namespace {

using Json = nlohmann::ordered_json;

Json::json_pointer pointer(std::string_view path) {
  std::string text = "/" + std::string(path);
  for (char& c : text) c = c == '.' ? '/' : c;
  return Json::json_pointer(text);
}

// What the three schedulers print, together.
std::vector<Json> printed_defaults() {
  std::vector<Json> all;
  using Kind = SchedulerConfig::Kind;
  for (const Kind kind : {Kind::kWarmupLr, Kind::kWarmupDecayLr, Kind::kWarmupCosineLr}) {
    Config config;
    config.scheduler.kind = kind;
    all.push_back(Json::parse(to_json(config)));
  }
  return all;
}

}  // namespace

TEST_CASE("training keys are honoured, idle or refused as the table says") {
  for (const Key& key : training_rows()) check_row(key);
}

TEST_CASE("every honoured key is printed, with the default of its struct") {
  const std::vector<Json> defaults = printed_defaults();
  std::vector<Key> rows = training_rows();
  for (const Key& key : zero_rows()) rows.push_back(key);
  for (const Key& key : rows) {
    if (key.state != KeyState::kHonoured || key.type == KeyType::kSection) continue;
    CAPTURE(key.path);
    bool printed = false;
    for (const Json& json : defaults) {
      if (!json.contains(pointer(key.path))) continue;
      printed = true;
      if (key.fallback != "null") CHECK(json[pointer(key.path)] == Json::parse(key.fallback));
    }
    CHECK(printed);
  }
}

TEST_CASE("everything that is printed is a honoured key") {
  for (const Json& json : printed_defaults()) {
    const Json flat = json.flatten();
    for (const auto& [path, value] : flat.items()) {
      std::string name = path.substr(1);
      for (char& c : name) c = c == '/' ? '.' : c;
      if (name.starts_with("optimizer.params.betas")) name = "optimizer.params.betas";
      CAPTURE(name);
      const Key* key = find_key(name);
      REQUIRE(key != nullptr);
      CHECK(key->state == KeyState::kHonoured);
    }
  }
}

}  // namespace zeroth::configs
