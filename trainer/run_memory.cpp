#include "trainer/run_memory.h"

#include <algorithm>

#include "model/blocks/build.h"

namespace zeroth::trainer {
namespace {

engine::OutlineOptions outline_options(const RunPlan& plan, const configs::Config& config,
                                       const std::optional<engine::ChainBytes>& chain) {
  const Samples& samples = plan.samples;
  const int64_t element = config.precision == configs::Precision::kFp32 ? 4 : 2;
  const int64_t rows = std::min(config.batch.micro_batch_size, samples.train_samples);
  engine::OutlineOptions options{
      .world_size = plan.num_ranks,
      .device = plan.device,
      .trains = !plan.flags.eval_only,
      .block_input_bytes = rows * samples.seq_len * plan.spec.hidden_size * element};
  if (!chain) return options;
  options.micro_batch = {.chain = *chain, .most_rows = samples.train_samples};
  if (samples.train) options.micro_batch->row_tokens = data::longest_row(*samples.train);
  if (samples.eval) {
    options.micro_batch->eval_tokens =
        plan.eval_deal(0, 1).micro_batch * data::longest_row(*samples.eval);
  }
  return options;
}

}  // namespace

engine::Outline outline_of(const RunPlan& plan, const configs::Config& config,
                           const std::optional<engine::ChainBytes>& chain) {
  return engine::outline(model::build_blocks(plan.spec), config,
                         outline_options(plan, config, chain));
}

engine::RunMemory run_memory(const RunPlan& plan, const engine::MachineRoom& room,
                             const std::optional<engine::ChainBytes>& chain) {
  const auto with = [&plan, chain](const configs::Config& config) {
    return outline_of(plan, config, chain).memory;
  };
  return {.config = plan.config,
          .options = outline_options(plan, plan.config, chain),
          .memory = chain ? with(plan.config) : plan.outline.memory,
          .room = room,
          .with = with};
}

}  // namespace zeroth::trainer
