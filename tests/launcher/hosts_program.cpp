// What the tests of several hosts run as the launcher: agents of this build are started directly,
// or by the ssh of HOSTS_SSH.
//   hosts_program [OPTION VALUE]... -- PROGRAM arguments...
//     --hosts NAME:SLOTS,NAME:SLOTS   who runs how many ranks
//     --silence MS, --limit MS        see RemoteJob and GatheringRequest
//     --folder DIR                    to work in
//     --env NAME=VALUE                for ranks
//     --instead NODE                  what follows --sh is started instead of this host's agent
//     --sh COMMAND                    by a shell
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/standard_streams.h"
#include "launcher/cluster/launch_on_hosts.h"

namespace {

using namespace zeroth;
using namespace zeroth::launcher;
using Words = std::vector<std::string>;

struct Options {
  HostsLaunch launch;
  int instead = -1;
  std::string sh;
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

Options parse(const Words& words) {
  Options options;
  GatheringRequest& gathering = options.launch.gathering;
  gathering.job.folder = std::filesystem::current_path();
  gathering.job.bind_cores = false;
  for (const char* name : {"DS_ACCELERATOR", "PID_DIR"})  // sshd hands on nothing
    if (const char* value = std::getenv(name)) gathering.job.env.emplace_back(name, value);
  size_t i = 1;
  for (; words.at(i) != "--"; i += 2) {
    const std::string& flag = words[i];
    const std::string& value = words.at(i + 1);
    if (flag == "--hosts") gathering.hosts = hosts_of(value);
    if (flag == "--silence") gathering.job.silence = std::chrono::milliseconds(std::stoi(value));
    if (flag == "--limit") gathering.limit = std::chrono::milliseconds(std::stoi(value));
    if (flag == "--folder") gathering.job.folder = value;
    if (flag == "--env")
      gathering.job.env.emplace_back(value.substr(0, value.find('=')),
                                     value.substr(value.find('=') + 1));
    if (flag == "--instead") options.instead = std::stoi(value);
    if (flag == "--sh") options.sh = value;
  }
  gathering.job.command.assign(words.begin() + static_cast<std::ptrdiff_t>(i) + 1, words.end());
  return options;
}

AgentStart agents(const Options& options, const std::string& launcher, const std::string& secret) {
  AgentStart start;
  const char* ssh = std::getenv("HOSTS_SSH");
  for (size_t i = 0; i < options.launch.gathering.hosts.size(); ++i) {
    const int node = static_cast<int>(i);
    const Words agent = {
        ZEROTH_BIN_DIR "/zeroth", "agent",         "--launcher", launcher, "--node",
        std::to_string(node),     "--secret-stdin"};
    AgentCommand command{.argv = agent, .input = secret + "\n", .hosts = {node}};
    if (ssh != nullptr) {
      command.argv = split(ssh, ' ');
      command.argv.push_back(options.launch.gathering.hosts[i].host);
      std::string line;
      for (const std::string& word : agent) line += (line.empty() ? "" : " ") + word;
      command.argv.push_back(line);
    }
    if (node == options.instead) command.argv = {"/bin/sh", "-c", options.sh};
    start.agents.push_back(command);
  }
  return start;
}

void say(const std::string& line) {
  write_all(STDERR_FILENO, fmt::format("zeroth: {}\n", line));
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_streams();
  try {
    Options options = parse({argv, argv + argc});
    options.launch.gathering.say = say;
    options.launch.gathering.agents = [&](const std::string& launcher, const std::string& secret) {
      return agents(options, launcher, secret);
    };
    const JobOutcome outcome = launch_on_hosts(options.launch);
    if (!outcome.message.empty()) say(outcome.message);
    return outcome.status;
  } catch (const std::exception& error) {
    say(fmt::format("error: {}", error.what()));
    return 1;
  }
}
