#include "trainer/report/summary.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/machine/cpu.h"
#include "base/text/units.h"
#include "comm/bootstrap/host_address.h"
#include "comm/bootstrap/rank_env.h"
#include "configs/schema/keys.h"
#include "device/memory_use.h"
#include "engine/start.h"
#include "trainer/report/config_text.h"
#include "trainer/run_memory.h"
#include "trainer/step_trigger.h"

namespace zeroth::trainer {
namespace {

// Formats with two decimal places; a value below 0.1 with two digits.
std::string epochs_text(double epochs) {
  if (epochs < 0.1) return fmt::format("{:.2g} epochs", epochs);
  const double rounded = std::round(epochs * 100) / 100;
  return fmt::format("{} epoch{}", rounded, rounded == 1 ? "" : "s");
}

std::string recompute_text(const configs::Config& config) {
  const configs::RecomputeConfig& recompute = config.recompute;
  if (config.pipeline.is_breadth_first() && !config.pipeline.is_on() &&
      recompute.number_checkpoints > 0)
    return "; recompute: every block keeps only its input";
  if (recompute.every_nth_block > 0) {
    const int64_t every = recompute.every_nth_block;
    return fmt::format("; recompute: every {}block keeps only its input",
                       every == 1 ? "" : fmt::format("{}. ", every));
  }
  if (recompute.number_checkpoints > 0) {
    return fmt::format("; recompute between {} kept inputs", recompute.number_checkpoints);
  }
  return "";
}

// Returns when an action is due; empty: not before the end of the run.
std::string when_text(const RunPlan& plan, const Interval& interval) {
  const StepTrigger trigger = plan.trigger(interval);
  if (interval.mode == Interval::Mode::kBest) return "when it is the best so far";
  if (trigger.num_before_end() == 0) return "";
  if (interval.mode == Interval::Mode::kEpochs) return "every epoch";
  return trigger.interval_steps() == 1 ? "every step"
                                       : fmt::format("every {} steps", trigger.interval_steps());
}

// Returns a line for each setting that has no effect in a run that computes in CPU memory.
std::vector<std::string> cpu_offload_notes(const engine::RunMemory& run) {
  const configs::Config& config = run.config;
  const bool trains = run.options.trains;
  const bool offloads = value_of(config, "zero_optimization.offload_optimizer.device") != "none";
  struct Setting {
    const char* key;
    nlohmann::ordered_json value;
    bool is_used;
  };
  const Setting settings[] = {
      {"zero_optimization.offload_optimizer.device", "cpu", trains},
      {"zero_optimization.offload_optimizer.step", "gpu", trains && offloads},
      {"zero_optimization.offload_param.device", "cpu", true},
      {"activation_checkpointing.cpu_checkpointing", true, trains && config.recompute.is_on()}};
  std::vector<std::string> notes;
  for (const auto& [key, value, is_used] : settings) {
    if (!is_used || value_of(config, key) != value) continue;
    notes.push_back(fmt::format("{}{} has no effect: this run computes in host memory", key,
                                value == true ? "" : " " + value.dump()));
  }
  return notes;
}

}  // namespace

std::string file_name(const std::string& path) {
  const auto whole = std::filesystem::path(path).lexically_normal();
  return whole.has_filename() ? whole.filename().string() : whole.parent_path().filename().string();
}

SummaryLine note_line(const std::string& text) {
  return {"note", text};
}

SummaryLine warning_line(const std::string& text) {
  return {"warning", text, configs::LogLevel::kWarning};
}

std::string model_line(const std::string& directory, const model::ModelSpec& spec,
                       int64_t parameters) {
  std::string text =
      fmt::format("{} ({}): {} parameters, {}, hidden {}, vocabulary {}{}", file_name(directory),
                  spec.family, format_count(parameters), pluralize(spec.num_layers, "layer"),
                  spec.hidden_size, spec.vocab_size, spec.tie_word_embeddings ? ", tied" : "");
  if (spec.quantization) {
    text += fmt::format("; layers in NF4{}{}",
                        spec.quantization->double_quant ? " with double quantization" : "",
                        spec.quantization->is_stored ? ", as stored" : "");
  }
  return text;
}

std::string adapter_line(const RunPlan& plan) {
  const auto value = [&](const char* key) { return value_of(plan.config, key); };
  const engine::MemoryEstimate& estimate = plan.estimate;
  const auto share =
      100 * static_cast<double>(estimate.num_saved) / static_cast<double>(estimate.num_parameters);
  std::string text = fmt::format("r {}, alpha {:g}{}, dropout {:g}, on {}", value("lora.r").dump(),
                                 value("lora.lora_alpha").get<double>(),
                                 value("lora.use_rslora") == true ? " (rsLoRA)" : "",
                                 value("lora.lora_dropout").get<double>(),
                                 pluralize(std::ssize(plan.adapter->plan.modules), "module"));
  if (!plan.flags.adapter.empty()) text += " of " + plan.flags.adapter;
  if (!plan.trains()) return text;
  return fmt::format("{}; {} of {} parameters are trained ({:.2g} %)", text,
                     format_count(estimate.num_saved), format_count(estimate.num_parameters),
                     share);
}

std::string data_line(const std::vector<std::string>& paths, const data::Dataset& dataset) {
  const data::DatasetStats stats = dataset.stats();
  std::vector<std::string> names;
  std::ranges::transform(paths, std::back_inserter(names), file_name);
  std::string text =
      fmt::format("{}: {} of at most {} positions, {} tokens, {} trained", fmt::join(names, ", "),
                  pluralize(stats.samples, "sample"), dataset.seq_len(), format_count(stats.tokens),
                  format_count(stats.num_label_tokens));
  if (stats.chunked) text += "; texts joined";
  if (stats.rows > 0) text += fmt::format("; packed into {}", pluralize(stats.rows, "row"));
  if (stats.truncated > 0) text += fmt::format("; {} cut at the end", stats.truncated);
  if (stats.cut_labels > 0 && (stats.pairs || stats.chats))
    text += fmt::format(" ({} within what is trained)", stats.cut_labels);
  if (stats.split > 0) text += fmt::format("; {} split", pluralize(stats.split, "record"));
  if (stats.dropped > 0) text += fmt::format("; {} dropped: nothing to train", stats.dropped);
  if (stats.too_long > 0) text += fmt::format("; {} dropped: too long", stats.too_long);
  if (stats.bad_records > 0)
    text += fmt::format("; {} skipped", pluralize(stats.bad_records, "bad record"));
  if (stats.turns > 0) {
    text += fmt::format("; the template ends {} of {}", stats.turns - stats.turns_without_end,
                        pluralize(stats.turns, "turn"));
  }
  if (stats.lost_tokens > 0) {
    text += fmt::format("; {} left out", pluralize(stats.lost_tokens, "token"));
  }
  if (stats.blank_lines > 0)
    text += fmt::format("; {}", pluralize(stats.blank_lines, "blank line"));
  return text;
}

std::string ranks_text(const comm::DeviceMesh& mesh, int threads) {
  return fmt::format("{} on {}, {} each{}", mesh.world_size(), mesh.device().str(),
                     pluralize(threads, "thread"),
                     mesh.device().is_cpu() ? ", " + describe_cpu_isa() : "");
}

std::string mesh_line(const comm::MeshShape& shape) {
  constexpr size_t kMaxShown = 8;
  if (shape[comm::MeshDim::kTp] == 1) return shape.str();
  const auto groups = comm::MeshLayout(shape).along({comm::MeshDim::kTp}).parts;
  const size_t shown = std::min(groups.size(), kMaxShown);
  std::string text = fmt::format("{}: tensor group{}", shape.str(), groups.size() == 1 ? "" : "s");
  for (size_t i = 0; i < shown; ++i) text += fmt::format(" {{{}}}", fmt::join(groups[i], " "));
  return shown == groups.size() ? text : fmt::format("{} and {} more", text, groups.size() - shown);
}

std::string batch_line(const data::BatchPartition& batch, const Samples& samples,
                       int64_t num_ranks) {
  const std::string ranks = pluralize(batch.world, batch.world == num_ranks ? "rank" : "data rank");
  const data::Dataset* const dataset = samples.train ? samples.train.get() : samples.eval.get();
  const bool packed = dataset != nullptr && dataset->stats().rows > 0;
  const char* const unit = packed ? "packed row" : "sample";
  if (!samples.train) {
    return fmt::format("{} = {} per micro-batch x {}",
                       pluralize(batch.micro_batch * batch.world, unit), batch.micro_batch, ranks);
  }
  std::string text =
      fmt::format("{} = {} per micro-batch x {} accumulated x {}", pluralize(batch.samples(), unit),
                  batch.micro_batch, batch.micro_steps, ranks);
  const auto num_samples =
      static_cast<double>(samples.num_samples_in(samples.total_steps * batch.samples()));
  text += fmt::format("; {} = {}", pluralize(samples.total_steps, "step"),
                      epochs_text(num_samples / static_cast<double>(samples.train_size())));
  return text;
}

std::string precision_line(const configs::Config& config, bool trains) {
  auto text = value_of(config, "data_types.param_dtype").get<std::string>();
  if (!trains) return text;
  if (text == "bf16") {
    text += value_of(config, "bf16.bf16_optimizer_states") == true
                ? ", masters and optimizer states too"
            : value_of(config, "bf16.bf16_master_weights_and_grads") == true ? ", masters too"
                                                                             : " with fp32 masters";
  }
  if (config.scales_loss()) {
    const configs::LossScaleConfig& scale = config.loss_scale;
    text += fmt::format(" with fp32 masters, {}",
                        scale.is_dynamic()
                            ? fmt::format("dynamic loss scale from 2^{}", scale.initial_scale_power)
                            : fmt::format("loss scale {:g}", scale.static_scale));
  }
  text += recompute_text(config);
  if (config.pipeline.is_breadth_first() && !config.pipeline.is_on())
    text += "; breadth-first: all micro-batches pass a block before the next";
  return text;
}

std::string gathers_text(const engine::MemoryEstimate& estimate) {
  if (estimate.gathered_per_step == 0) return "";
  return fmt::format("; in a step each rank gathers {} of parameters, each {:.3g} times",
                     format_bytes(estimate.gathered_per_step),
                     static_cast<double>(estimate.gathered_per_step) /
                         static_cast<double>(estimate.gathered_parameters));
}

std::string optimizer_line(const configs::Config& config, const engine::DecayCounts& decay,
                           std::string_view clipping) {
  std::string text = fmt::format("{}, weight decay {:g} on {} parameters", optimizer_text(config),
                                 config.optimizer.weight_decay, format_count(decay.decayed));
  if (decay.not_decayed > 0) {
    text += fmt::format(", none on {} (norms, biases)", format_count(decay.not_decayed));
  }
  const auto norm = value_of(config, "gradient_clipping").get<double>();
  text += fmt::format("; {}; {}", schedule_text(config.scheduler),
                      norm > 0 ? fmt::format("clipped at norm {:g}", norm) : "not clipped");
  return clipping.empty() ? text : fmt::format("{} ({})", text, clipping);
}

// `lora_dropout`: of adapters; the line of the adapters has it.
std::string loss_line(configs::LossMean mean, const model::ModelSpec& spec, double lora_dropout) {
  const std::string text = mean == configs::LossMean::kToken
                               ? "mean over the trained tokens of a step"
                               : "mean of the micro-batches' means";
  const double max_dropout =
      std::max({spec.embedding_dropout, spec.attention_dropout, spec.residual_dropout});
  if (max_dropout == 0) return text + (lora_dropout == 0 ? "; no dropout" : "");
  return fmt::format("{}; dropout: embedding {:g}, attention {:g}, residual {:g}", text,
                     spec.embedding_dropout, spec.attention_dropout, spec.residual_dropout);
}

// Returns the speed of data between ranks, and the interface in use.
std::string links_line(const comm::DeviceMesh& mesh, const comm::RankEnv& env) {
  const std::string speed = comm::to_string(comm::measure_links(mesh));
  const std::string way =
      comm::inter_node_interface(env, mesh.device().is_cuda() && !env.share_gpus);
  return way.empty() ? speed : fmt::format("{} by {}", speed, way);
}

// Adds warnings about facts that only all ranks together, or several keys, determine.
void add_warnings(const RunPlan& plan, const engine::RunMemory& memory,
                  const comm::DeviceMesh& mesh, SummaryLines& lines) {
  const auto profiled_step = plan.config.flops_profiler.profiled_step();
  if (profiled_step && plan.samples.train && *profiled_step >= plan.samples.total_steps) {
    lines.push_back(warning_line(fmt::format(
        "flops_profiler.profile_step {}: the run has only {} steps, counted from 0; nothing is "
        "profiled",
        *profiled_step, plan.samples.total_steps)));
  }
  if (!mesh.device().is_cuda()) return;
  const int64_t free = device::free_device_bytes(mesh.device());
  const auto warning =
      engine::gpu_warning(memory, free + engine::connected_gpu_bytes(memory.options.shape));
  if (warning) lines.push_back(warning_line(*warning));
}

SummaryLines summary(const RunPlan& plan, const engine::RunMemory& memory,
                     const comm::DeviceMesh& mesh, const comm::RankEnv& env, int threads) {
  SummaryLines lines;
  const auto add = [&](const std::string& title, const std::string& text) {
    lines.push_back({title, text});
  };
  const Flags& flags = plan.flags;
  const Samples& samples = plan.samples;
  add("model", model_line(flags.model, plan.spec, plan.estimate.num_parameters));
  if (plan.adapter) add("adapter", adapter_line(plan));
  if (samples.train) add("data", data_line(flags.data, *samples.train));
  if (samples.eval) add("eval", data_line(eval_files(flags), *samples.eval));
  add("ranks", ranks_text(mesh, threads));
  if (mesh.nodes().size() > 1) {
    add("hosts", comm::describe_nodes(mesh.nodes()));
    add("links", links_line(mesh, env));
  }
  const comm::MeshShape shape = engine::grid_shape(plan.config, mesh.world_size());
  if (plan.config.sharing_ranks() > 1) add("mesh", mesh_line(shape));
  add("batch", batch_line(plan.train_partition(0), samples, mesh.world_size()));
  add("precision", precision_line(plan.config, plan.trains()));
  add("strategy", plan.estimate.strategy + gathers_text(plan.estimate));
  if (const std::string text = describe_pipeline(plan, memory); !text.empty())
    add("pipeline", text);
  for (const std::string& line : engine::memory_lines(memory)) add("memory", line);
  if (plan.trains()) {
    const auto found = plan.origins.find("gradient_clipping");
    const std::string origin = found == plan.origins.end() ? "" : found->second;
    add("optimizer", optimizer_line(plan.config, plan.estimate.decay, origin));
  }
  if (const std::string text = defaults_line(plan); !text.empty()) add("defaults", text);
  if (const std::string text = interval_line(plan); !text.empty()) add("intervals", text);
  const double lora_dropout = plan.adapter ? plan.adapter->plan.dropout : 0;
  if (plan.trains()) add("loss", loss_line(plan.config.loss_mean, plan.spec, lora_dropout));
  using Kind = configs::Diagnostic::Kind;
  for (const std::string& note : diagnostic_lines(plan.notes, Kind::kNote)) add("note", note);
  for (const std::string& note : offload_notes(memory)) add("note", note);
  for (const std::string& note : mesh.notes()) add("note", note);
  for (const std::string& warning : diagnostic_lines(plan.notes, Kind::kWarning)) {
    lines.push_back(warning_line(warning));
  }
  add_warnings(plan, memory, mesh, lines);
  return lines;
}

SummaryLines::iterator put_warnings_last(SummaryLines& lines) {
  return std::stable_partition(lines.begin(), lines.end(), [](const SummaryLine& line) {
    return line.level == configs::LogLevel::kInfo;
  });
}

std::string interval_line(const RunPlan& plan) {
  if (!plan.trains()) return "";
  const Intervals& intervals = plan.flags.intervals;
  std::vector<std::string> parts;
  if (const std::string when = when_text(plan, intervals.evaluate); !when.empty()) {
    parts.push_back("evaluated " + when);
  }
  if (const std::string when = when_text(plan, intervals.save); !when.empty()) {
    parts.push_back(fmt::format("saved {} ({}){}", when,
                                intervals.save_total_limit
                                    ? fmt::format("the newest {} kept", *intervals.save_total_limit)
                                    : "all kept",
                                plan.flags.state.only_model ? ": the model alone" : ""));
  }
  if (intervals.ends_with_best) parts.emplace_back("the best model at the end");
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::vector<std::string> offload_notes(const engine::RunMemory& run) {
  std::vector<std::string> notes;
  if (run.options.device == torch::kCPU) notes = cpu_offload_notes(run);
  const auto value = [&](const std::string& key) {
    return value_of(run.config, "zero_optimization." + key);
  };
  const zero::MemoryPlan& memory = run.memory;
  const int64_t updated_in_file = memory.masters.file + memory.states.file;
  if (run.options.trains && value("offload_optimizer.device") == "nvme" && updated_in_file == 0) {
    notes.push_back(fmt::format(
        "zero_optimization.offload_optimizer.device \"nvme\": nothing is offloaded to a file: {}",
        memory.masters.total() + memory.states.total() > 0
            ? fmt::format("ratio {:g} leaves no unit for it",
                          value("offload_optimizer.ratio").get<double>())
            : "this optimizer has no state"));
  }
  if (value("offload_param.device") == "nvme" && memory.parameters.file == 0) {
    notes.push_back(fmt::format(
        "zero_optimization.offload_param.device \"nvme\": nothing is offloaded to a file: "
        "max_in_cpu {} and stage3_param_persistence_threshold {} keep all in memory",
        value("offload_param.max_in_cpu").dump(),
        value("stage3_param_persistence_threshold").dump()));
  }
  return notes;
}

}  // namespace zeroth::trainer
