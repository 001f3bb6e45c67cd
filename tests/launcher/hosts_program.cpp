// What the tests of several hosts run as the launcher: agents of this build are started directly,
// or by the ssh of HOSTS_SSH.
//   hosts_program [OPTION VALUE]... -- PROGRAM arguments...
//     --hosts NAME:SLOTS,NAME:SLOTS   who runs how many ranks
//     --silence MS, --limit MS        see RemoteJob and GatheringRequest
//     --folder DIR                    to work in
//     --env NAME=VALUE                for ranks
//     --instead NODE                  what follows --sh is started instead of this host's agent
//     --instead-from NODE             and instead of those of all hosts behind it
//     --sh COMMAND                    by a shell
//     --one-machine yes               hosts say that they are; else they say that they are not
//     --quiet yes                     see AgentPoolOptions and JobOptions
//     --elastic MIN:MAX               in rounds, see ElasticConfig, as these:
//     --model-parallel PIPELINE:TENSOR
//     --restarts N, --wait MS, --try-again MS, --join-port PORT, --hosts-file FILE (as --hosts)
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/machine/standard_streams.h"
#include "launcher/cluster/join_run.h"
#include "launcher/cluster/launch_multi_node.h"
#include "launcher/run/restart_policy.h"

namespace {

using namespace zeroth;
using namespace zeroth::launcher;
using Words = std::vector<std::string>;

struct Options {
  MultiNodeConfig config;
  int instead = -1;
  int instead_from = 1 << 20;
  std::string sh;
  bool one_machine = false;
};

Words split(const std::string& text, char at) {
  Words words;
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, at);) words.push_back(word);
  return words;
}

std::vector<HostSlots> hosts_of(const std::string& text) {
  std::vector<HostSlots> hosts;
  for (const std::string& entry : split(text, ',')) {
    HostSlots host{entry.substr(0, entry.rfind(':')), {}};
    const int slots = std::stoi(entry.substr(entry.rfind(':') + 1));
    for (int slot = 0; slot < slots; ++slot) host.slots.push_back(slot);
    hosts.push_back(host);
  }
  return hosts;
}

void parse_elastic(ElasticConfig& plan, const std::string& flag, const std::string& value) {
  const auto time = [&] { return std::chrono::milliseconds(std::stoi(value)); };
  if (flag == "--elastic")
    plan.hosts = {std::stoi(value), std::stoi(value.substr(value.find(':') + 1))};
  if (flag == "--model-parallel")
    plan.model_parallel = {std::stoi(value), std::stoi(value.substr(value.find(':') + 1))};
  if (flag == "--restarts") plan.max_restarts = std::stoi(value);
  if (flag == "--wait") plan.join_timeout = time();
  if (flag == "--try-again") plan.retry_interval = time();
  if (flag == "--hosts-file")
    plan.poll_hosts = [value] {
      std::ifstream file(value);
      std::string text;
      std::getline(file, text);
      return hosts_of(text);
    };
}

Options parse(const Words& words) {
  Options options;
  RemoteJob& job = options.config.agents.job;
  job.working_directory = std::filesystem::current_path();
  job.bind_cores = false;
  ElasticConfig plan;
  plan.poll_interval = std::chrono::milliseconds(200);
  plan.restart_last_call = std::chrono::seconds(20);  // a busy machine's hosts are slow, not lost
  for (const char* name : {"DS_ACCELERATOR", "PID_DIR"})  // sshd hands on nothing
    if (const char* value = std::getenv(name)) job.env.emplace_back(name, value);
  size_t i = 1;
  for (; words.at(i) != "--"; i += 2) {
    const std::string& flag = words[i];
    const std::string& value = words.at(i + 1);
    if (flag == "--hosts") options.config.hosts = hosts_of(value);
    if (flag == "--silence") job.liveness_timeout = std::chrono::milliseconds(std::stoi(value));
    if (flag == "--limit")
      options.config.answer_timeout = std::chrono::milliseconds(std::stoi(value));
    if (flag == "--folder") job.working_directory = value;
    if (flag == "--env")
      job.env.emplace_back(value.substr(0, value.find('=')), value.substr(value.find('=') + 1));
    if (flag == "--instead") options.instead = std::stoi(value);
    if (flag == "--instead-from") options.instead_from = std::stoi(value);
    if (flag == "--join-port") options.config.agents.join_port = std::stoi(value);
    if (flag == "--elastic") options.config.elastic.emplace();
    parse_elastic(plan, flag, value);
    if (flag == "--sh") options.sh = value;
    if (flag == "--one-machine") options.one_machine = true;
    if (flag == "--quiet") options.config.agents.quiet = options.config.runner.job.quiet = true;
  }
  job.command.assign(words.begin() + static_cast<std::ptrdiff_t>(i) + 1, words.end());
  if (!options.config.elastic) return options;
  options.config.elastic = plan;
  job.requeue_code = plan.requeue_code;
  if (!options.config.agents.join_port) return options;
  options.config.agents.secret = join_secret();
  options.config.agents.join_address = "127.0.0.1";
  return options;
}

AgentCommands agents(const Options& options, const std::vector<HostSlots>& hosts,
                     const std::string& launcher, const std::string& secret) {
  AgentCommands start;
  const char* ssh = std::getenv("HOSTS_SSH");
  for (size_t i = 0; i < hosts.size(); ++i) {
    const int node = static_cast<int>(i);
    Words agent = {ZEROTH_BIN_DIR "/zeroth", "agent",         "--launcher", launcher, "--node",
                   std::to_string(node),     "--secret-stdin"};
    if (!options.one_machine && ssh == nullptr)
      agent.insert(agent.begin(), {"/usr/bin/env", "ZEROTH_HOST_ID=" + hosts[i].host});
    AgentCommand command{.argv = agent, .input = secret + "\n", .hosts = {node}};
    if (ssh != nullptr) {
      command.argv = split(ssh, ' ');
      command.argv.push_back(hosts[i].host);
      std::string line;
      for (const std::string& word : agent) line += (line.empty() ? "" : " ") + word;
      command.argv.push_back(line);
    }
    if (node == options.instead || node >= options.instead_from)
      command.argv = {"/bin/sh", "-c", options.sh};
    start.agents.push_back(command);
  }
  return start;
}

void log_line(const std::string& line) {
  write_all(STDERR_FILENO, fmt::format("zeroth: {}\n", line));
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_streams();
  try {
    Options options = parse({argv, argv + argc});
    options.config.agents.log = options.config.log_outcome = log_line;
    options.config.agents.make_commands =
        [&](const std::vector<HostSlots>& hosts, const std::string& launcher,
            const std::string& secret) { return agents(options, hosts, launcher, secret); };
    const JobOutcome outcome = launch_multi_node(options.config);
    if (!outcome.message.empty()) log_line(outcome.message);
    return to_exit_code(outcome, options.config.agents.job.requeue_code);
  } catch (const std::exception& error) {
    log_line(fmt::format("error: {}", error.what()));
    return 1;
  }
}
