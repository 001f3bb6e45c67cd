#include "monitor/run_page.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <regex>

#include "base/error.h"
#include "base/json/json.h"
#include "tests/support/temp_folder.h"

namespace zeroth::monitor::run_page_test {
namespace {

namespace fs = std::filesystem;

const RunPage::Warn kNoWarning = [](const std::string& text) { FAIL(text); };

PageFacts facts() {
  return {.title = "tiny </script><b>llama</b>",
          .total_steps = 60,
          .summary = {{"model", "tiny: 2 layers"}},
          .config = {{"zero_optimization.stage", "2", "ds.json"}},
          .environment = {{"machine", "a \"quoted\" name \xff"}}};
}

void train(RunPage& page, int steps, int first = 1) {
  const double unknown = std::numeric_limits<double>::quiet_NaN();
  for (int step = first; step <= steps; ++step) {
    page.step({{"step", step},
               {"loss", step == 7 ? unknown : 8.0 / step},
               {"lr", 1e-3},
               {"grad_norm", 1.5},
               {"tokens_per_s", 1000},
               {"peak_share", step == 1 ? unknown : 0.4},
               {"memory_mib", 300},
               {"gpu_mib", 0},
               {"data_s", 0.001},
               {"forward_s", 0.1},
               {"backward_s", 0.2},
               {"reduce_s", 0.01},
               {"update_s", 0.02},
               {"compute_s", 0.3},
               {"communication_s", 0.02},
               {"waiting_s", 0.011},
               {"expert_load_max", 1.25}});
  }
}

nlohmann::json data_of(const std::string& page) {
  const std::string start = "<script type=\"application/json\" id=\"data\">";
  const size_t from = page.find(start) + start.size();
  return nlohmann::json::parse(page.substr(from, page.find("</script>", from) - from));
}

// Chromium's rendering of a page as HTML, after its scripts have run; empty without Chromium.
std::string rendered(const fs::path& page) {
  const fs::path out = page.string() + ".dom";
  const std::string command = fmt::format(
      "command -v chromium > '{0}' || exit 0; HOME='{1}' timeout -k 5 90 chromium --headless "
      "--no-sandbox --disable-gpu --user-data-dir='{1}/profile' --dump-dom 'file://{2}' > '{0}' "
      "2> '{0}.err'",
      out.string(), page.parent_path().string(), page.string());
  REQUIRE(std::system(command.c_str()) == 0);
  return read_text(out);
}

// The points of the curves of the chart `id`.
long points_drawn(const std::string& dom, const std::string& id) {
  const size_t from = dom.find("id=\"" + id + "\"");
  if (from == std::string::npos) return 0;
  const std::string chart = dom.substr(from, dom.find("</svg>", from) - from);
  const std::regex curve("<path d=\"([^\"]*)\"[^>]*class=\"curve\"");
  std::smatch match;
  if (!std::regex_search(chart, match, curve)) return 0;
  const std::string path = match[1];
  return std::count(path.begin(), path.end(), 'L') + std::count(path.begin(), path.end(), 'M');
}

}  // namespace

TEST_CASE("the page holds the numbers, and text that cannot leave its place") {
  const TempFolder directory;
  RunPage page(directory.path() / "out/train_log.html", facts(), kNoWarning);
  train(page, 8);
  page.evaluation(4, 5.25);
  const std::string text = page.html(RunPage::Status::kRunning, 99);
  const auto data = data_of(text);
  CHECK(data["title"] == "tiny </script><b>llama</b>");
  CHECK(data["state"] == "running");
  CHECK(data["written"] == 99);
  CHECK(data["steps"]["step"].size() == 8);
  CHECK(data["steps"]["loss"][1] == 4);
  CHECK(data["steps"]["loss"][6].is_null());
  CHECK(data["steps"]["peak_share"][0].is_null());
  CHECK(data["evaluations"]["loss"][0] == 5.25);
  CHECK(data["config"][0] == nlohmann::json{"zero_optimization.stage", "2", "ds.json"});
  CHECK(text.find("<b>llama") == std::string::npos);
}

TEST_CASE("the page draws the operations of each rank in one step") {
  const TempFolder directory;
  RunPage page(directory.path() / "train_log.html", facts(), kNoWarning);
  train(page, 3);
  CHECK(data_of(page.html(RunPage::Status::kRunning, 99))["timeline"].is_null());
  page.timeline({{"step", 2},
                 {"ranks",
                  {{{"name", "rank 0, stage 0"},
                    {"events", {{1, 0, 0, 0, 900, 0}, {2, 0, 0, 900, 2000, 400}}}},
                   {{"name", "rank 1, stage 1"}, {"events", {{1, 0, 1, 0, 1300, 800}}}}}},
                 {"omitted", 6}});
  CHECK(data_of(page.html(RunPage::Status::kRunning, 99))["timeline"]["step"] == 2);
  page.write(RunPage::Status::kFinished);
  const std::string dom = rendered(directory.path() / "train_log.html");
  if (dom.empty()) return;
  for (const char* const text :
       {"Step 2 on each rank", "rank 1, stage 1", "6 more ranks are not shown",
        "forward of micro-batch 0, chunk 1: 1.3 ms, of which 800 us waiting"})
    CHECK_MESSAGE(dom.find(text) != std::string::npos, text);
  const std::regex event("<rect class=\"event\"");
  CHECK(std::distance(std::sregex_iterator(dom.begin(), dom.end(), event), {}) == 3);
}

TEST_CASE("the page shows control bytes of names and texts") {
  const TempFolder directory;
  PageFacts evil = facts();
  evil.title = "a\x1b[2J\xff";
  evil.summary = {{"model", "x\u202ey\n"}};
  evil.config = {{"nvme_path", "/\x7f", "file"}};
  const RunPage page(directory.path() / "train_log.html", evil, kNoWarning);
  const auto data = data_of(page.html(RunPage::Status::kRunning, 99));
  CHECK(data["title"] == "a\\u001b[2J\\xff");
  CHECK(data["summary"][0][1] == "x\\u202ey\\n");
  CHECK(data["config"][0][1] == "/\\u007f");
}

TEST_CASE("the page asks for nothing from elsewhere and stays small in a long run") {
  const TempFolder directory;
  RunPage page(directory.path() / "train_log.html", facts(), kNoWarning);
  train(page, 20'000);
  const std::string text = page.html(RunPage::Status::kFinished, 0);
  for (const char* outside : {"src=", "href=", "@import", "url(", "fetch(", "https:"}) {
    CHECK_MESSAGE(text.find(outside) == std::string::npos, outside);
  }
  CHECK(text.size() < 200'000);
}

TEST_CASE("the file is there from the start and is replaced whole") {
  const TempFolder directory;
  const fs::path path = directory.path() / "out/train_log.html";
  RunPage page(path, facts(), kNoWarning);
  CHECK(data_of(read_text(path))["steps"]["step"].empty());
  train(page, 3);
  page.write(RunPage::Status::kStopped);
  CHECK(data_of(read_text(path))["steps"]["step"].size() == 3);
  CHECK(data_of(read_text(path))["state"] == "stopped");
  CHECK(std::distance(fs::directory_iterator(path.parent_path()), fs::directory_iterator()) == 1);
}

TEST_CASE("a page that cannot be written is an error at the start and one warning later") {
  const TempFolder directory;
  write_text(directory.path() / "file", "");
  const fs::path wrong = directory.path() / "file/train_log.html";
  CHECK(message_of<Error>([&] { RunPage(wrong, facts(), kNoWarning); }) ==
        wrong.string() + " cannot be written: " + wrong.parent_path().string() +
            ": Not a directory");
  std::vector<std::string> warnings;
  const fs::path path = directory.path() / "out/train_log.html";
  RunPage page(path, facts(), [&](const std::string& text) { warnings.push_back(text); });
  fs::remove_all(path.parent_path());
  page.write(RunPage::Status::kRunning);
  page.write(RunPage::Status::kFinished);
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0] == path.string() +
                           " cannot be written: No such file or directory; the page is not updated "
                           "anymore, training continues");
}

TEST_CASE("a page whose output was taken over stays that of the other, without a warning") {
  const TempFolder directory;
  const fs::path path = directory.path() / "train_log.html";
  bool is_ours = true;
  RunPage page(path, facts(), kNoWarning, nullptr, [&] {
    if (!is_ours) throw OutputTakenOver("taken over");
  });
  page.write(RunPage::Status::kRunning);
  directory.write("train_log.html", "of the next round");
  is_ours = false;
  CHECK_THROWS_AS(page.write(RunPage::Status::kStopped), OutputTakenOver);
  CHECK(read_text(path) == "of the next round");
  CHECK_FALSE(fs::exists(directory.path() / "train_log.html.part"));
}

TEST_CASE("what stands in the place of the page's next version is not written through") {
  const TempFolder directory;
  const fs::path victim = directory.write("victim", "precious");
  const fs::path path = directory.path() / "train_log.html";
  for (const char* name : {"train_log.html", "train_log.html.part"}) {
    fs::create_symlink(victim, directory.path() / name);
  }
  RunPage page(path, facts(), kNoWarning);
  fs::create_symlink(victim, directory.path() / "train_log.html.part");
  page.write(RunPage::Status::kFinished);
  CHECK(read_text(victim) == "precious");
  CHECK_FALSE(fs::is_symlink(path));
  CHECK(data_of(read_text(path))["state"] == "finished");
  CHECK_FALSE(fs::exists(directory.path() / "train_log.html.part"));
}

TEST_CASE("a browser tells times in units that fit") {
  const TempFolder directory;
  RunPage page(directory.path() / "train_log.html", facts(), kNoWarning);
  const double started = data_of(page.html(RunPage::Status::kRunning, 0))["started"];
  const auto time_after = [&](double seconds) {
    const auto path =
        directory.write("after.html", page.html(RunPage::Status::kRunning, started + seconds));
    const std::string dom = rendered(path);
    const std::regex tile("<span>Time</span><b>([^<]*)</b>");
    std::smatch match;
    return std::regex_search(dom, match, tile) ? match[1].str() : dom.empty() ? "no chromium" : dom;
  };
  if (time_after(0) == "no chromium") return;
  CHECK(time_after(0) == "0 s");
  CHECK(time_after(0.25) == "250 ms");
  CHECK(time_after(59.97) == "1m00s");
  CHECK(time_after(3725) == "1h02m");
}

TEST_CASE("a browser draws the curves") {
  const TempFolder directory;
  const fs::path path = directory.path() / "train_log.html";
  RunPage page(path, facts(), kNoWarning);
  train(page, 60);
  page.evaluation(30, 5.25);
  page.evaluation(60, 4.25);
  page.write(RunPage::Status::kFinished);
  const std::string dom = rendered(path);
  if (dom.empty()) {
    MESSAGE("no chromium on this machine: what a browser makes of the page is not tested");
    return;
  }
  REQUIRE_MESSAGE(dom.find("</body>") != std::string::npos, read_text(path.string() + ".dom.err"));
  CHECK(points_drawn(dom, "loss") == 59);  // one was not finite
  for (const char* id : {"rate", "norm", "speed", "memory", "experts"}) {
    CHECK_MESSAGE(points_drawn(dom, id) == 60, id);
  }
  CHECK(points_drawn(dom, "share") == 59);
  CHECK(dom.find("<td class=\"origin\">ds.json</td>") != std::string::npos);
  CHECK(dom.find("communication 20 ms") != std::string::npos);
  CHECK(dom.find("&lt;b&gt;llama") != std::string::npos);
  const auto circles = std::regex("<circle ");
  CHECK(std::distance(std::sregex_iterator(dom.begin(), dom.end(), circles), {}) == 2);
}

TEST_CASE("a browser marks where a run went on, and leaves the time between out") {
  const TempFolder directory;
  const fs::path path = directory / "train_log.html";
  RunPage before(path, facts(), kNoWarning);
  train(before, 30);
  const double started = data_of(before.html(RunPage::Status::kRunning, 0))["started"];
  nlohmann::json history = before.history(started + 5);
  history["away"] = 20;
  const RunPage::PreviousRun previous{.history = JsonView(history), .step = 30};
  RunPage page(path, facts(), kNoWarning, &previous);
  train(page, 60, 31);
  const std::string dom = rendered(
      directory.write("after.html", page.html(RunPage::Status::kFinished, started + 27.5)));
  if (dom.empty()) {
    MESSAGE("no chromium on this machine: what a browser makes of the page is not tested");
    return;
  }
  CHECK(dom.find("class=\"resumed\"") != std::string::npos);
  CHECK(dom.find("resumed at step 30") != std::string::npos);
  CHECK(dom.find("<span>Time</span><b>7.5 s</b>") != std::string::npos);
  CHECK(points_drawn(dom, "rate") == 60);
}

TEST_CASE("a browser shows a page without a step, too") {
  const TempFolder directory;
  const fs::path path = directory.path() / "train_log.html";
  const RunPage page(path, facts(), kNoWarning);
  const std::string dom = rendered(path);
  if (dom.empty()) {
    MESSAGE("no chromium on this machine: what a browser makes of the page is not tested");
    return;
  }
  CHECK(dom.find("<td class=\"origin\">ds.json</td>") != std::string::npos);
}

TEST_CASE(
    "the page of a run that goes on is that of one that was never interrupted, but for times") {
  const TempFolder directory;
  const fs::path path = directory / "train_log.html";
  RunPage whole(directory / "whole.html", facts(), kNoWarning);
  train(whole, 2500);
  whole.evaluation(1000, 5.25);
  whole.evaluation(2000, 4.25);
  nlohmann::json history;
  double started = 0;
  {
    RunPage page(path, facts(), kNoWarning);
    train(page, 1300);
    page.evaluation(1000, 5.25);
    const double written = data_of(page.html(RunPage::Status::kRunning, 0))["started"];
    started = written;
    history = parse_json(page.history(started - 40).dump(), {.name = "history"});
  }
  const RunPage::PreviousRun previous{.history = JsonView(history), .step = 1300};
  RunPage page(path, facts(), kNoWarning, &previous);
  CHECK(data_of(read_text(path))["steps"]["step"].size() > 500);
  train(page, 2500, 1301);
  page.evaluation(2000, 4.25);
  auto data = data_of(page.html(RunPage::Status::kFinished, started));
  auto expected = data_of(whole.html(RunPage::Status::kFinished, started));
  CHECK(data["started"] == started);
  CHECK(data["away"].get<double>() >= 40);
  CHECK(data["away"].get<double>() < 100);
  CHECK(data["resumed"] == nlohmann::json{1300});
  for (const char* key : {"started", "away", "resumed"}) {
    data.erase(key);
    expected.erase(key);
  }
  CHECK(data == expected);
  CHECK(page.history()["resumed"] == nlohmann::json{1300});
}

TEST_CASE("a page that nobody saved is refused, and what stands there stays") {
  const TempFolder directory;
  const fs::path path = directory.write("train_log.html", "the page before");
  const nlohmann::json good = RunPage(directory / "other.html", facts(), kNoWarning).history();
  const auto refused = [&](const char* key, const nlohmann::json& value) {
    nlohmann::json history = good;
    history[key] = value;
    const RunPage::PreviousRun previous{.history = JsonView(history, "page"), .step = 3};
    return message_of<Error>([&] { RunPage(path, facts(), kNoWarning, &previous); });
  };
  CHECK(refused("started", "inf") == "page.started is \"inf\", expected a time in seconds");
  CHECK(refused("away", -1) == "page.away is -1, expected a time in seconds");
  CHECK(refused("resumed", {4}) == "page.resumed[0] is 4, expected an integer in 0..3");
  CHECK(refused("steps", 3) == "page.steps is 3, expected an object");
  CHECK(read_text(path) == "the page before");
  const RunPage::PreviousRun unknown{.history = {}, .step = 3};
  const RunPage page(path, facts(), kNoWarning, &unknown);
  CHECK(data_of(read_text(path))["resumed"] == nlohmann::json{3});
}

TEST_CASE("begins_anew_doubles: a page tells the next try where it wrote, and whether it ended") {
  const TempFolder directory;
  const fs::path path = directory / "train_log.html";
  CHECK(!read_page(path));
  PageFacts known = facts();
  known.run_name = "Nov23_13-36-30_host";
  known.monitors = {"logs/j", "out/runs/<b>\"x\""};
  RunPage page(path, known, kNoWarning);
  train(page, 20);
  page.write(RunPage::Status::kStopped);
  const auto stopped = read_page(path);
  REQUIRE(stopped);
  CHECK(!stopped->is_finished);
  CHECK(stopped->started > 1.6e9);
  CHECK(stopped->run_name == known.run_name);
  CHECK(stopped->monitors == known.monitors);
  page.write(RunPage::Status::kFinished);
  CHECK(read_page(path)->is_finished);
  for (const char* const other : {"", "<html></html>", "[1, 2]"}) {
    write_text(path, other);
    CHECK(!read_page(path));
  }
  known.run_name = "../elsewhere";
  const RunPage moved(path, known, kNoWarning);
  CHECK(read_page(path)->run_name.empty());
}

}  // namespace zeroth::monitor::run_page_test
