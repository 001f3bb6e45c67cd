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

int parse_node_count(const std::string& text, const std::string& full_text) {
  const auto count = parse_number<int>(text);
  if (!count || *count < 1 || *count > kMaxNodes)
    throw UsageError("--elastic {}: must be MIN:MAX, numbers of hosts of at least 1",
                     shortened(full_text));
  return *count;
}

NodeRange parse_node_range(const std::string& text) {
  const size_t colon = text.find(':');
  NodeRange range;
  range.min = parse_node_count(text.substr(0, colon), text);
  range.max =
      colon == std::string::npos ? range.min : parse_node_count(text.substr(colon + 1), text);
  return range;
}

void check_range(const NodeRange& range) {
  if (range.max != 0 && range.min > range.max)
    throw UsageError("--elastic {}:{}: the minimum {} is larger than the maximum {}", range.min,
                     range.max, range.min, range.max);
}

void check_nodes(std::optional<int> nodes, const char* flag) {
  if (nodes && *nodes != -1 && *nodes < 1)
    throw UsageError("{} {}: at least one host is needed", flag, *nodes);
}

// Converts DeepSpeed's flags. Its default is -1: at least one host, at most those of the hostfile.
void apply_deepspeed_flags(ElasticOptions& options) {
  if (!options.elastic_training) {
    if (options.min_nodes || options.max_nodes)
      throw UsageError("--min_elastic_nodes and --max_elastic_nodes need --elastic_training");
    return;
  }
  if (options.hosts)
    throw UsageError("--elastic and --elastic_training mean the same: use one of them");
  check_nodes(options.min_nodes, "--min_elastic_nodes");
  check_nodes(options.max_nodes, "--max_elastic_nodes");
  const int min = options.min_nodes.value_or(-1), max = options.max_nodes.value_or(-1);
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

void check_host_values(const HostOptions& options) {
  if (options.hostfile && options.hostfile->size() >= PATH_MAX)
    throw UsageError("--hostfile {}: a path has at most {} bytes", shortened(*options.hostfile),
                     PATH_MAX - 1);
  if (options.num_nodes && *options.num_nodes < 1)
    throw UsageError("--num_nodes {}: at least one host is needed", *options.num_nodes);
  if (options.node_rank && *options.node_rank < 0)
    throw UsageError("--node_rank {}: hosts are counted from 0", *options.node_rank);
  check_port(options.ssh_port, "--ssh_port");
  if (options.no_ssh && options.force_multi)
    throw UsageError("--no_ssh and --force_multi contradict each other");
}

void add_elastic_flags(CLI::App& app, ElasticOptions& options) {
  app.option_defaults()->group("Elasticity and restarts");
  app.add_option_function<std::string>(
         "--elastic", [&](const std::string& text) { options.hosts = parse_node_range(text); },
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
  if (options.hosts) check_range(*options.hosts);
  if (options.max_restarts && *options.max_restarts < 0)
    throw UsageError("--max-restarts {}: restarts cannot be negative", *options.max_restarts);
  if (options.wait_seconds < 0)
    throw UsageError("--elastic-wait {}: seconds cannot be negative", options.wait_seconds);
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
