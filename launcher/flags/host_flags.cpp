#include "launcher/flags/host_flags.h"

#include <CLI/CLI.hpp>
#include <climits>

#include "base/error.h"
#include "base/scheduler_env.h"
#include "base/text/printable.h"
#include "base/text/units.h"

namespace zeroth::launcher {
namespace {

constexpr int kMaxNodes = 100'000;

constexpr std::string_view kNeedsHost = "at least one host is needed";

// Converts DeepSpeed's flags. Its default is -1: at least one host, at most those of the hostfile.
void apply_deepspeed_flags(ElasticOptions& options) {
  if (!options.elastic_training) {
    if (options.min_nodes || options.max_nodes)
      throw UsageError("--min_elastic_nodes and --max_elastic_nodes need --elastic_training");
    return;
  }
  if (options.hosts)
    throw UsageError("--elastic and --elastic_training mean the same: use one of them");
  const int min = options.min_nodes.value_or(-1), max = options.max_nodes.value_or(-1);
  if (min != -1) check_minimum(1, min, "--min_elastic_nodes", kNeedsHost);
  if (max != -1) check_minimum(1, max, "--max_elastic_nodes", kNeedsHost);
  options.hosts = NodeRange{.min = min == -1 ? 1 : min, .max = max == -1 ? 0 : max};
}

}  // namespace

void add_host_flags(CLI::App& app, HostOptions& options) {
  app.option_defaults()->group("Several machines");
  app.add_option("-H,--hostfile", options.hostfile,
                 "File with one host per line, such as 'worker-0 slots=8' (default: /job/hostfile, "
                 "if it exists; else only this machine)")
      ->option_text("FILE");
  app.add_option("--num_nodes", options.num_nodes, "Use only the first N hosts")->option_text("N");
  app.add_option("--launcher", options.launcher,
                 "How to reach hosts: pdsh (default, if installed), ssh (default otherwise), "
                 "openmpi, mpich, impi or slurm")
      ->option_text("LAUNCHER");
  app.add_option(
         "--launcher_args", options.launcher_args,
         "Additional arguments for --launcher, in one word; quotes group them as in a shell")
      ->option_text("ARGS");
  app.add_option("--ssh_port", options.ssh_port, "Port of ssh on the hosts")->option_text("PORT");
  app.add_flag("--no_ssh", options.no_ssh,
               "Do not connect to hosts: zeroth is started on each manually, with --node_rank and "
               "--master_addr");
  app.add_option("--node_rank", options.node_rank,
                 "With --no_ssh: which host of the hostfile this machine is, from 0")
      ->option_text("N");
  app.add_flag("--no_ssh_check", options.no_ssh_check,
               "No effect: hosts are not checked beforehand");
  app.add_flag("--force_multi", options.force_multi,
               "Start an agent even if the only host is this machine");
}

void check_port(std::optional<int> port, std::string_view flag) {
  if (port && (*port < 1 || *port > kMaxPort))
    throw UsageError("{} {}: a port lies between 1 and {}", flag, *port, kMaxPort);
}

void check_minimum(int min, std::optional<int> value, std::string_view flag,
                   std::string_view reason) {
  if (value && *value < min) throw UsageError("{} {}: {}", flag, *value, reason);
}

void check_path_length(std::string_view path, std::string_view flag) {
  if (path.size() >= PATH_MAX)
    throw UsageError("{} {}: a path has at most {} bytes", flag, shortened(path), PATH_MAX - 1);
}

void check_host_values(const HostOptions& options) {
  check_path_length(options.hostfile.value_or(""), "--hostfile");
  check_minimum(1, options.num_nodes, "--num_nodes", kNeedsHost);
  check_minimum(0, options.node_rank, "--node_rank", "hosts are counted from 0");
  check_port(options.ssh_port, "--ssh_port");
  if (options.no_ssh && options.force_multi)
    throw UsageError("--no_ssh and --force_multi contradict each other");
}

std::optional<NodeRange> parse_node_range(std::string_view text, int limit) {
  const size_t colon = text.find(':');
  const auto min = parse_number<int>(text.substr(0, colon));
  const auto max = colon == text.npos ? min : parse_number<int>(text.substr(colon + 1));
  const auto is_count = [&](std::optional<int> count) {
    return count && *count >= 1 && *count <= limit;
  };
  return is_count(min) && is_count(max) ? std::optional(NodeRange{*min, *max}) : std::nullopt;
}

void add_elastic_flags(CLI::App& app, ElasticOptions& options) {
  app.option_defaults()->group("Elasticity and restarts");
  app.add_option_function<std::string>(
         "--elastic",
         [&](const std::string& text) {
           options.hosts = parse_node_range(text, kMaxNodes);
           if (!options.hosts)
             throw UsageError("--elastic {}: must be MIN:MAX, numbers of hosts of at least 1",
                              shortened(text));
         },
         "Minimum and maximum number of hosts: the run continues without those that are lost, and "
         "with those that join")
      ->option_text("MIN:MAX");
  app.add_option("--max-restarts,--max_restarts", options.max_restarts,
                 "Maximum number of restarts of all ranks after a failure, from the last "
                 "checkpoint (default: 3 with --elastic, else 0)")
      ->option_text("N");
  app.add_option("--requeue-code,--requeue_code", options.requeue_code,
                 "Exit code after SIGTERM, and if too few hosts are left, that means: saved, "
                 "resubmit me (default: 75 with --elastic, else 143)")
      ->option_text("CODE");
  app.add_option("--elastic-wait,--elastic_wait", options.wait_seconds,
                 "How long to wait for MIN hosts (default: 600)")
      ->option_text("SECONDS");
  app.add_option("--join-port,--join_port", options.join_port,
                 "Port at which hosts that know ZEROTH_SECRET can join the run (default: none)")
      ->option_text("PORT");
  app.add_option("--join", options.join,
                 "Offer this machine, with --num_gpus ranks, to the run whose launcher has this "
                 "--join-port, which sets the program")
      ->option_text("ADDRESS:PORT");
  app.add_flag("--elastic_training", options.elastic_training,
               "DeepSpeed's form of --elastic, with the next two flags");
  app.add_option("--min_elastic_nodes", options.min_nodes, "MIN (default: 1)")->option_text("N");
  app.add_option("--max_elastic_nodes", options.max_nodes,
                 "MAX (default: the hosts of the hostfile)")
      ->option_text("N");
}

void check_elastic_values(ElasticOptions& options) {
  apply_deepspeed_flags(options);
  if (options.hosts && options.hosts->max != 0 && options.hosts->min > options.hosts->max)
    throw UsageError("--elastic {0}:{1}: the minimum {0} is larger than the maximum {1}",
                     options.hosts->min, options.hosts->max);
  check_minimum(0, options.max_restarts, "--max-restarts", "restarts cannot be negative");
  check_minimum(0, options.wait_seconds, "--elastic-wait", "seconds cannot be negative");
  if (options.requeue_code && (*options.requeue_code < 1 || *options.requeue_code > 125))
    throw UsageError("--requeue-code {}: must be from 1 to 125, shells reserve those beyond",
                     *options.requeue_code);
  check_port(options.join_port, "--join-port");
  if (options.join_port && !options.hosts)
    throw UsageError("--join-port {}: only a run with --elastic accepts hosts", *options.join_port);
  if (!options.join.empty() && options.hosts)
    throw UsageError(
        "--join and --elastic cannot be combined: the joined run sets its number of hosts");
}

}  // namespace zeroth::launcher
