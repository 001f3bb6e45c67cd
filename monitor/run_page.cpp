#include "monitor/run_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "base/files/directory.h"
#include "base/files/regular_file.h"
#include "base/files/replace_file.h"
#include "base/json/json.h"
#include "base/text/printable.h"

namespace zeroth::monitor {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kDataMark = "__DATA__";
constexpr size_t kMaxPageBytes = size_t{16} << 20;
constexpr size_t kMaxMarks = 1000;  // resume steps to keep

// Returns the seconds since 1970, to the millisecond.
double seconds_now() {
  using namespace std::chrono;
  return static_cast<double>(
             duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count()) /
         1000;
}

// Parses seconds since 1970, or of a run's time, in the range that a page can show.
double parse_time(const JsonView& view) {
  const double seconds = exact_number(view);
  if (!(seconds >= 0 && seconds < 1e11)) view.refuse("a time in seconds");
  return seconds;
}

const char* status_name(RunPage::Status state) {
  constexpr std::array kNames = {"running", "finished", "stopped"};  // in the order of Status
  return kNames.at(static_cast<size_t>(state));
}

// Rounds to six digits, which are more than a curve shows.
Json number(double value) {
  if (!std::isfinite(value)) return nullptr;
  return std::strtod(fmt::format("{:.6g}", value).c_str(), nullptr);
}

Json columns(const Curves& curves) {
  Json json = {{"step", curves.xs()}};
  for (size_t name = 0; name < curves.names().size(); ++name) {
    Json column = Json::array();
    for (size_t point = 0; point < curves.size(); ++point) {
      column.push_back(number(curves.value(name, point)));
    }
    json[curves.names()[name]] = std::move(column);
  }
  return json;
}

Json attempts_json(const PageFacts& facts) {
  Json rounds = Json::array();
  for (const AttemptRow& one : facts.rounds) {
    rounds.push_back({{"round", one.round},
                      {"hosts", one.hosts},
                      {"ranks", one.ranks},
                      {"step", one.step},
                      {"lost", one.lost ? Json(*one.lost) : Json(nullptr)},
                      {"cause", one.cause}});
  }
  return rounds;
}

// Makes text from files and directories printable, as on a terminal.
PageFacts printable_facts(PageFacts facts) {
  const auto make = [](std::string& text) { text = printable(text); };
  make(facts.title);
  for (auto* lines : {&facts.summary, &facts.environment}) {
    for (auto& [title, text] : *lines) make(text);
  }
  for (PageFacts::Value& value : facts.config) make(value.value);
  for (AttemptRow& round : facts.rounds) make(round.cause);
  return facts;
}

// Returns text for a script element: no "<" that could end it. Bytes that are not UTF-8 are
// replaced.
std::string script_text(const Json& json) {
  std::string safe;
  for (const char character : to_line(json)) {
    safe += character == '<' ? std::string("\\u003c") : std::string(1, character);
  }
  return safe;
}

}  // namespace

RunPage::RunPage(std::filesystem::path path, PageFacts facts, Warn warn,
                 const PreviousRun* previous, OutputGuard guard)
    : path_(std::move(path)),
      facts_(printable_facts(std::move(facts))),
      warn_(std::move(warn)),
      guard_(std::move(guard)),
      steps_({"loss", "lr", "grad_norm", "tokens_per_s", "peak_share", "memory_mib", "gpu_mib",
              "data_s", "forward_s", "backward_s", "reduce_s", "update_s", "compute_s",
              "communication_s", "waiting_s", "expert_load_max"}),
      evaluations_({"loss"}),
      start_time_(seconds_now()) {
  if (previous != nullptr) resume_from(*previous);
  try {
    if (path_.has_parent_path()) Directory::create(path_.parent_path());
  } catch (const Error& error) {
    throw Error("{} cannot be written: {}", path_.string(), error.what());
  }
  replace_file(path_, html(Status::kRunning, seconds_now()), guard_);
}

nlohmann::json RunPage::history(double seconds) const {
  return {{"started", exact_number(start_time_)},
          {"written", exact_number(seconds)},
          {"away", exact_number(downtime_)},
          {"resumed", resume_steps_},
          {"steps", steps_.to_json()},
          {"evaluations", evaluations_.to_json()}};
}

nlohmann::json RunPage::history() const {
  return history(seconds_now());
}

void RunPage::resume_from(const PreviousRun& previous) {
  if (previous.history) {
    const JsonView& history = *previous.history;
    steps_.restore(history.at("steps"));
    evaluations_.restore(history.at("evaluations"));
    const double now = std::exchange(start_time_, parse_time(history.at("started")));
    downtime_ = parse_time(history.at("away"));
    downtime_ += std::max(0.0, now - parse_time(history.at("written")));
    const JsonView resumed = history.at("resumed");
    for (size_t i = resumed.size() - std::min(resumed.size(), kMaxMarks); i < resumed.size(); ++i) {
      resume_steps_.push_back(resumed.at(i).integer(0, previous.step));
    }
  }
  resume_steps_.push_back(previous.step);
}

void RunPage::step(const nlohmann::ordered_json& values) {
  std::vector<double> row;
  for (const std::string& name : steps_.names()) row.push_back(values.at(name).get<double>());
  steps_.add(values.at("step").get<int64_t>(), row);
}

void RunPage::evaluation(int64_t step, double loss) {
  evaluations_.add(step, {loss});
}

void RunPage::write(Status state) {
  if (failed_) return;
  try {
    replace_file(path_, html(state, seconds_now()), guard_);
  } catch (const OutputTakenOver&) {
    throw;
  } catch (const Error& error) {
    failed_ = true;
    warn_(fmt::format("{}; the page is not updated anymore, training continues", error.what()));
  }
}

std::string RunPage::html(Status state, double seconds) const {
  Json config = Json::array();
  for (const auto& value : facts_.config) {
    config.push_back(Json::array({value.key, value.value, value.origin}));
  }
  const Json data = {{"title", facts_.title},
                     {"state", status_name(state)},
                     {"total_steps", facts_.total_steps},
                     {"started", start_time_},
                     {"written", seconds},
                     {"away", downtime_},
                     {"resumed", resume_steps_},
                     {"steps_per_point", steps_.steps_per_point()},
                     {"steps", columns(steps_)},
                     {"evaluations", columns(evaluations_)},
                     {"timeline", timeline_},
                     {"rounds", attempts_json(facts_)},
                     {"run_name", facts_.run_name},
                     {"monitors", facts_.monitors},
                     {"summary", facts_.summary},
                     {"config", std::move(config)},
                     {"environment", facts_.environment}};
  std::string page = kPageTemplate;
  const size_t at = page.find(kDataMark);
  ZEROTH_CHECK(at != std::string::npos, "the page's template has no {}", kDataMark);
  return page.replace(at, kDataMark.size(), script_text(data));
}

std::optional<PreviousPage> read_page(const std::filesystem::path& path) {
  const std::string_view page_template = kPageTemplate;
  const size_t begin = page_template.find(kDataMark);
  const std::string_view after_data = page_template.substr(begin + kDataMark.size());
  try {
    const std::string text = read_file(path.string(), kMaxPageBytes);
    const size_t end = text.find(after_data.substr(0, after_data.find('>')), begin);
    if (begin >= text.size() || end == text.npos) return std::nullopt;
    const nlohmann::json tree = parse_json(std::string_view(text).substr(begin, end - begin),
                                           {.name = path.string(), .limits = kConfigLimits});
    const JsonView data(tree);
    PreviousPage previous{
        .is_finished = data.at("state").text() == status_name(RunPage::Status::kFinished),
        .started = parse_time(data.at("started"))};
    const std::string name = data.at("run_name").text();
    if (name.find('/') == name.npos && name != "..") previous.run_name = name;
    previous.monitors = data.at("monitors").texts();
    return previous;
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace zeroth::monitor
