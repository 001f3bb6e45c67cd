#include "trainer/report/history.h"

#include <fmt/format.h>

#include <limits>

#include "base/json/json.h"
#include "base/json/json_view.h"

namespace zeroth::trainer {
namespace {

constexpr int64_t kVersion = 1;
// Limits for a million and a half rows of log_history, with six values each.
constexpr JsonLimits kLimits = {.bytes = size_t{256} << 20, .values = 10'000'000};

}  // namespace

std::string to_text(const History& history) {
  return nlohmann::json{{"version", kVersion},
                        {"step", history.step},
                        {"seconds", exact_number(history.seconds)},
                        {"loss", history.loss ? exact_number(*history.loss) : nlohmann::json()},
                        {"run_name", history.run_name},
                        {"record", history.record},
                        {"page", history.page}}
             .dump() +
         "\n";
}

History parse_history(const std::string& text) {
  const nlohmann::json tree = parse_json(text, {.name = kHistoryFile, .limits = kLimits});
  const auto member = [&](const char* key) {
    return JsonView(JsonView(tree, kHistoryFile).at(key).json(),
                    fmt::format("{}: {}", kHistoryFile, key));
  };
  (void)member("version").integer(kVersion, kVersion);
  History history{.step = member("step").integer(0, std::numeric_limits<int64_t>::max() / 4),
                  .seconds = exact_number(member("seconds")),
                  .run_name = member("run_name").text(),
                  .record = member("record").json(),
                  .page = member("page").json()};
  if (!(history.seconds >= 0 && history.seconds < 1e11)) {
    member("seconds").refuse("a time in seconds");
  }
  const std::string& name = history.run_name;
  if (name == "." || name == ".." || name.find('/') != name.npos || name.find('\0') != name.npos) {
    member("run_name").refuse("the name of a folder");
  }
  if (!member("loss").json().is_null()) history.loss = exact_number(member("loss"));
  return history;
}

std::map<int64_t, double> eval_losses(const std::string& text) {
  const History history = parse_history(text);
  std::map<int64_t, double> losses;
  if (history.record.is_null()) return losses;
  const JsonView rows =
      JsonView(history.record, fmt::format("{}: record", kHistoryFile)).at("evaluations");
  for (size_t i = 0; i < rows.size(); ++i) {
    const JsonView row = rows.at(i);
    const int64_t step = row.at(size_t{0}).integer(0, history.step);
    const auto loss = row.at(1).find("eval_loss");
    if (loss && loss->json().is_number()) losses[step] = loss->json().get<double>();
  }
  return losses;
}

}  // namespace zeroth::trainer
