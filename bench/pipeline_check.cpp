// Compares traced steps of a pipeline with the simulation that predicts its bubble.
//
//   pipeline_check TRACE SCHEDULE
//
// TRACE is the trace.json of `finetune --trace-steps`, SCHEDULE the run's pipeline.schedule. Feeds
// engine::check_schedule with the median of the time that each kind of pass took in each chunk,
// waits apart. Prints JSON: the seconds from a step's first pass to the end of its last (median of
// the steps) and the simulated ones, the shares of the ranks' time in which they waited, and the
// largest number of micro-batches of which each rank kept inputs.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files/regular_file.h"
#include "base/json/json.h"
#include "configs/schema/enum_names.h"
#include "engine/step/schedule_check.h"

namespace {

using namespace zeroth;
using engine::PipeOpKind;

struct Pass {
  PipeOpKind kind = PipeOpKind::kForward;
  int64_t step = 0, micro_batch = 0, chunk = 0;
  size_t rank = 0;
  double begin = 0, end = 0, waited = 0;  // seconds
};

constexpr double kMicrosecond = 1e-6;

std::vector<Pass> read_passes(const std::string& path) {
  const std::map<std::string, PipeOpKind> kinds = {
      {"forward", PipeOpKind::kForward},
      {"backward", PipeOpKind::kBackward},
      {"backward input", PipeOpKind::kBackwardInput},
      {"backward weight", PipeOpKind::kBackwardWeight}};
  const nlohmann::json trace = parse_json(read_file(path, size_t{256} << 20), {.name = path});
  std::vector<Pass> passes;
  for (const auto& event : trace.at("traceEvents")) {
    const std::string category = event.value("cat", "");
    if (category == "wait" && !passes.empty()) {  // follows the event in which it passed
      passes.back().waited = event.at("dur").get<double>() * kMicrosecond;
    } else if (const auto kind = kinds.find(category); kind != kinds.end()) {
      const auto& args = event.at("args");
      const double begin = event.at("ts").get<double>() * kMicrosecond;
      passes.push_back({.kind = kind->second,
                        .step = args.at("step"),
                        .micro_batch = args.at("micro_batch"),
                        .chunk = args.at("chunk"),
                        .rank = event.at("pid"),
                        .begin = begin,
                        .end = begin + event.at("dur").get<double>() * kMicrosecond});
    }
  }
  if (passes.empty()) throw Error("{}: no passes of a pipeline are in it", path);
  return passes;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) throw Error("usage: pipeline_check TRACE SCHEDULE");
  const auto schedule = configs::parse_enum<configs::PipelineConfig::Schedule>(argv[2]);
  if (!schedule) throw Error("{}: no schedule of a pipeline", argv[2]);
  const std::vector<Pass> passes = read_passes(argv[1]);
  engine::PipelineShape shape;
  std::map<int64_t, std::vector<Pass>> steps;
  std::map<std::pair<PipeOpKind, int64_t>, std::vector<double>> times;
  for (const Pass& pass : passes) {
    shape.ranks = std::max(shape.ranks, static_cast<int64_t>(pass.rank) + 1);
    shape.chunks = std::max(shape.chunks, pass.chunk + 1);  // of all ranks, until below
    shape.micro_batches = std::max(shape.micro_batches, pass.micro_batch + 1);
    steps[pass.step].push_back(pass);
    times[{pass.kind, pass.chunk}].push_back(pass.end - pass.begin - pass.waited);
  }
  shape.chunks /= shape.ranks;
  std::vector<double> spans, bubbles;
  std::vector<int64_t> peaks(static_cast<size_t>(shape.ranks));
  for (const auto& [step, own] : steps) {
    double begin = own.front().begin, end = 0, busy = 0;
    std::vector<int64_t> inputs(peaks.size());
    for (const Pass& pass : own) {
      begin = std::min(begin, pass.begin);
      end = std::max(end, pass.end);
      busy += pass.end - pass.begin - pass.waited;
      int64_t& kept = inputs[pass.rank];
      kept += pass.kind == PipeOpKind::kForward         ? 1
              : pass.kind == PipeOpKind::kBackwardInput ? 0
                                                        : -1;
      peaks[pass.rank] = std::max(peaks[pass.rank], kept);
    }
    spans.push_back(end - begin);
    bubbles.push_back(1 - busy / ((end - begin) * static_cast<double>(shape.ranks)));
  }
  const auto time = [&](PipeOpKind kind, int64_t chunk) {
    const auto found = times.find({kind, chunk});
    return found == times.end() ? 0.0 : median(found->second);
  };
  const engine::ScheduleCheck check = engine::check_schedule(*schedule, shape, time);
  fmt::print("{}\n", to_line(nlohmann::json{
                         {"measured", {{"seconds", median(spans)}, {"bubble", median(bubbles)}}},
                         {"simulated", {{"seconds", check.makespan}, {"bubble", check.bubble()}}},
                         {"inputs", {{"measured", peaks}, {"simulated", check.peaks}}}}));
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "pipeline_check: {}\n", error.what());
  return 1;
}
