#include "tests/equivalence/expect_row.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "tests/support/ranks.h"

namespace zeroth::equivalence {
namespace {

using configs::Precision;

std::string fixture_path(const std::string& name) {
  return ZEROTH_SOURCE_DIR "/tests/equivalence/fixtures/" + name + ".json";
}

// Some models have no reference of their own.
bool has_fixture(const std::string& name) {
  return std::filesystem::exists(fixture_path(name));
}

// fp16 is held against fp32. A base in NF4 depends on the precision of the weights before.
std::string fixture_run(const Row& row) {
  const bool of_bf16 = row.training >= Training::kQlora && row.precision == Precision::kBf16;
  if (trains_adapters(row.training)) return name_of(row.training) + (of_bf16 ? "_bf16" : "");
  if (row.precision == Precision::kBf16) return row.masked ? "bf16_masked" : "bf16";
  if (row.micro_batch_mean) return "micro_batch_mean";
  if (row.training != Training::kAdamW) return name_of(row.training);
  if (row.cosine) return "cosine";
  return row.masked ? "masked" : "fp32";
}

std::string kind(Precision precision) {
  switch (precision) {
    case Precision::kBf16:
      return "bf16";
    case Precision::kFp16:
      return "fp16";
    default:
      return "fp32";
  }
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

double largest_ratio(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] / b[i] - 1));
  return largest;
}

// Whether moments are quantized in other blocks than the reference's: those of a rank's slice. Then
// losses and norms may be as far from the reference's as quantizing takes these from fp32.
bool has_other_blocks(const Row& row) {
  return row.training == Training::kAdamW8bit && row.tensor > 1;
}

double max_norm_ratio(const Row& row) {
  if (!has_other_blocks(row)) return 1e-4;
  const nlohmann::json runs = load_fixture(row.model);
  return largest_ratio(runs.at("adamw_8bit")["grad_norms"], runs.at("fp32")["grad_norms"]);
}

// How far losses may be from the reference's: in 16 bits twice as far as rounding to bf16 takes the
// reference itself from fp32, since ours may go as far the other way, and fp16 rounds finer. Ranks
// that share layers round their addends, too.
double max_loss_difference(const Row& row) {
  if (has_other_blocks(row)) {
    const nlohmann::json runs = load_fixture(row.model);
    return largest_difference(runs.at("adamw_8bit")["losses"], runs.at("fp32")["losses"]);
  }
  if (row.precision == Precision::kFp32) return 2e-5;
  if (row.tensor > 1) return 2.5e-3;
  const nlohmann::json runs = load_fixture(row.model);
  return 2 * largest_difference(runs.at(row.masked ? "bf16_masked" : "bf16")["losses"],
                                runs.at(row.masked ? "masked" : "fp32")["losses"]);
}

bool same_bits(const RowResult& a, const RowResult& b) {
  if (a.losses != b.losses || a.grad_norms != b.grad_norms) return false;
  return std::equal(a.parameters.begin(), a.parameters.end(), b.parameters.begin(),
                    b.parameters.end(), [](const auto& x, const auto& y) {
                      return x.first == y.first && at::equal(x.second, y.second);
                    });
}

// The row whose bits this one must have. On a GPU what the host adds up (norms, and the 16-bit
// micro-batches of a single rank, which crosses no wire while its gradients stay) is rounded in
// another order: such a row has the bits of the same over host memory.
Row same_as(const Row& row) {
  Row same = plain(row);
  const configs::OffloadOptimizerConfig& optimizer = row.zero.offload_optimizer;
  const bool on_device = optimizer.device == configs::OffloadDevice::kNone;
  if (on_device || testing::device_of_tests().is_cpu()) return same;
  const bool gpu_step = optimizer.step == configs::OffloadOptimizerConfig::UpdateDevice::kGpu;
  const bool sums_on_host =
      row.ranks == 1 && row.accumulation > 1 && row.precision != Precision::kFp32;
  if (gpu_step && !sums_on_host) return same;
  same.zero.offload_optimizer.device = configs::OffloadDevice::kCpu;
  same.zero.offload_optimizer.step = optimizer.step;
  same.zero.offload_optimizer.ratio = optimizer.ratio;
  return same;
}

}  // namespace

nlohmann::json load_fixture(const std::string& name) {
  const std::string path = fixture_path(name);
  std::ifstream file(path);
  if (!file) throw Error("cannot open {}", path);
  return nlohmann::json::parse(file);
}

const RowResult& RowChecker::result(const Row& row) {
  const std::string name = name_of(row);
  const auto found = results_.find(name);
  return found != results_.end() ? found->second
                                 : results_.emplace(name, run_row(row)).first->second;
}

bool RowChecker::can_run(const Row& row) {
  const bool can =
      testing::gpu_count_of_tests() == 0 || testing::can_compute_on_gpus(mesh_shape_of(row));
  if (!can) ++left_out_;
  return can;
}

void RowChecker::check(const Row& row) {
  const std::string name = name_of(row);
  CAPTURE(name);
  if (!can_run(row)) return;
  ++rows_;
  try {
    const RowResult& own = result(row);
    CHECK(own.ranks_agree);
    CHECK(own.masters_rounded);
    CHECK(own.only_shards);
    CHECK(own.base_unchanged);
    CHECK(own.skipped == 0);
    check_losses(row, own);
    CHECK(same_bits(own, result(same_as(row))));
    const bool coded = row.training == Training::kAdamW8bit;  // rounding may change a code
    if (row.samples == Samples::kFull && !coded) check_parameters(row, own);
  } catch (const std::exception& error) {
    FAIL_CHECK(std::string(error.what()));
  }
}

void RowChecker::check_near(const Row& row, const std::string& fp32_run) {
  CAPTURE(name_of(row));
  if (!can_run(row)) return;
  ++rows_;
  const RowResult& own = result(row);
  CHECK(own.ranks_agree);
  CHECK(own.masters_rounded);
  CHECK(own.only_shards);
  CHECK(own.skipped == 0);
  note(kind(row.precision) + " loss of " + fp32_run,
       largest_difference(own.losses, load_fixture(row.model).at(fp32_run)["losses"]),
       max_loss_difference(row));
}

// What is dropped has no reference but the same samples on one rank.
void RowChecker::check_dropped_losses(const Row& row, const RowResult& own) {
  CHECK(largest_difference(own.losses, result(single(row)).losses) <= 2e-5);
  Row kept = single(row);
  kept.dropout = 0;
  CHECK(largest_difference(own.losses, result(kept).losses) > 1e-3);
}

// The references clip, which these rows must be seen not to do.
void RowChecker::check_unclipped_losses(const Row& row, const RowResult& own) {
  CHECK(largest_difference(own.losses, result(single(row)).losses) <= max_loss_difference(row));
  Row clipped = single(row);
  clipped.clipping = 1;
  CHECK(own.losses != result(clipped).losses);
}

// Short samples have no reference but rows of their own on one rank, which differ in rounding only.
// Measuring the noise of these references would take longer than all rows.
void RowChecker::check_short_losses(const Row& row, const RowResult& own) {
  const RowResult& alone = result(single(row));
  note("loss of short samples", largest_ratio(own.losses, alone.losses), 2e-5);
  note("first gradient of short samples", largest_gap(gradients(row), gradients(single(row))),
       2e-5);
  CHECK(largest_ratio(own.grad_norms, alone.grad_norms) <= 1e-4);
  if (row.dropout > 0) check_dropped_losses(row, own);
}

// A model without a reference of its own: the same on one rank, whose layers are transformers'.
void RowChecker::check_shared_losses(const Row& row, const RowResult& own) {
  const RowResult& alone = result(single(row));
  CHECK(largest_difference(own.losses, alone.losses) <= max_loss_difference(row));
  if (row.precision == Precision::kFp32)
    CHECK(largest_ratio(own.grad_norms, alone.grad_norms) <= 1e-4);
}

void RowChecker::check_losses(const Row& row, const RowResult& result) {
  if (row.samples != Samples::kFull) return check_short_losses(row, result);
  const bool of_family =
      has_fixture(row.model) && load_fixture(row.model).contains(fixture_run(row));
  if (row.tensor > 1 && !of_family) return check_shared_losses(row, result);
  if (row.dropout > 0) return check_dropped_losses(row, result);
  if (row.clipping != 1) return check_unclipped_losses(row, result);
  const nlohmann::json run = load_fixture(row.model).at(fixture_run(row));
  const std::vector<double> losses = run["losses"];
  REQUIRE(result.losses.size() == losses.size());
  const double off = largest_difference(result.losses, losses);
  CHECK(off <= max_loss_difference(row));
  double& worst = worst_[kind(row.precision) + " loss"];
  worst = std::max(worst, off);
  if (row.precision != Precision::kFp32) return;
  const double norms_off = largest_ratio(result.grad_norms, run["grad_norms"]);
  CHECK(norms_off <= max_norm_ratio(row));
  worst_["fp32 norm, relative"] = std::max(worst_["fp32 norm, relative"], norms_off);
  CHECK(largest_difference(result.rates, run["rates"]) <= 1e-12);
}

void RowChecker::check_parameters(const Row& row, const RowResult& own) {
  const RowResult& reference = result(single(row));
  REQUIRE_FALSE(reference.parameters.empty());
  REQUIRE(own.parameters.size() == reference.parameters.size());
  // Where layers are shared in 16 bits, each layer works on sums of rounded addends, whose noise
  // grows with the depth: the losses have a bound.
  const bool fp32 = row.precision == Precision::kFp32;
  if (row.tensor == 1 || fp32) {
    // Another product rounds some activations to the other neighbor in 16 bits.
    Row alike = single(row);
    if (!fp32) alike.rounding.product = row.rounding.product;
    note(kind(row.precision) + " first gradient", largest_gap(gradients(row), gradients(alike)),
         fp32 ? kMargin * noise(row).first_gradient : rounding_noise(row));
  }
  if (!fp32) return;
  note("fp32 states", largest_gap(own.states, reference.states, config_of(row).optimizer),
       kMargin * noise(row).states.back());
  for (const auto& [name, value] : reference.parameters) {
    CAPTURE(name);
    REQUIRE(own.parameters.count(name) == 1);
    if (!reach(row).contains(name)) {  // not trained
      CHECK(torch::equal(own.parameters.at(name), value));
      continue;
    }
    const torch::Tensor off = (own.parameters.at(name) - value).abs().to(torch::kDouble).flatten();
    note("fp32 parameter", (off / reach(row).at(name)).max().item<double>(), 1);
  }
}

// `value` is at most `most`; the log has how near it came.
void RowChecker::note(const std::string& what, double value, double limit) {
  CAPTURE(what);
  CHECK(value <= limit);
  double& worst = worst_[what + ", of its bound"];
  worst = std::max(worst, value / limit);
}

const Tensors& RowChecker::gradients(const Row& row) {
  const std::string name = name_of(row);
  const auto found = gradients_.find(name);
  return found != gradients_.end() ? found->second
                                   : gradients_.emplace(name, first_gradients(row)).first->second;
}

const Noise& RowChecker::noise(const Row& row) {
  const Row reference = single(row);
  const auto [found, is_new] = noises_.try_emplace(name_of(reference));
  Noise& noise = found->second;
  if (!is_new) return noise;
  for (const Row& perturbed : perturbed_runs(reference)) {
    widen(noise, first_gradients(perturbed), gradients(reference));
    widen(noise, run_row(perturbed).history, result(reference).history,
          config_of(reference).optimizer);
  }
  return noise;
}

const Tensors& RowChecker::reach(const Row& row) {
  const Row reference = single(row);
  const auto [found, is_new] = reaches_.try_emplace(name_of(reference));
  if (is_new) {
    found->second = equivalence::reach(result(reference).history, noise(reference),
                                       config_of(reference).optimizer);
  }
  return found->second;
}

std::string RowChecker::worst() const {
  std::string text = fmt::format("{} rows", rows_);
  for (const auto& [what, off] : worst_) text += fmt::format("; {} off by {:.2g}", what, off);
  if (left_out_ > 0) text += fmt::format("; {} left out: their ranks need a GPU each", left_out_);
  return text;
}

}  // namespace zeroth::equivalence
