#include "launcher/run/slots.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <string_view>

#include "base/text/printable.h"

namespace zeroth::launcher {
namespace {

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

bool contains(const std::vector<std::string>& list, const std::string& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

// Parses `NODE[:slot,slot]` to the named slots; a node without slots means all of them.
std::vector<std::string> parse_filter(std::string_view flag, const std::string& text,
                                      const std::vector<std::string>& node_slots) {
  const std::vector<std::string> nodes = split(text, '@');
  const std::string list = shortened(text);
  for (const std::string& node : nodes) {
    const std::string host = node.substr(0, node.find(':'));
    if (host != "localhost")
      throw UsageError("{} {}: unknown host '{}'; the only one is localhost", flag, list,
                       shortened(host));
  }
  if (nodes.size() > 1) throw UsageError("{} {}: localhost is named twice", flag, list);
  const size_t colon = text.find(':');
  if (colon == std::string::npos) return node_slots;
  std::vector<std::string> named;
  for (const std::string& slot : split(std::string_view(text).substr(colon + 1), ',')) {
    if (slot.empty()) throw UsageError("{} {}: a slot is missing", flag, list);
    if (contains(named, slot)) throw UsageError("{} {}: slot {} is repeated", flag, list, slot);
    if (!contains(node_slots, slot))
      throw UsageError("{} {}: unknown slot {}; localhost has {}", flag, list, shortened(slot),
                       shortened(fmt::format("{}", fmt::join(node_slots, ","))));
    named.push_back(slot);
  }
  return named;
}

std::vector<std::string> filter_slots(const LaunchOptions& options,
                                      const std::vector<std::string>& node_slots) {
  const bool include = !options.include.empty();
  const std::string_view flag = include ? "--include" : "--exclude";
  const std::string& text = include ? options.include : options.exclude;
  const std::vector<std::string> named = parse_filter(flag, text, node_slots);
  std::vector<std::string> chosen;
  for (const std::string& slot : node_slots)
    if (contains(named, slot) == include) chosen.push_back(slot);
  if (chosen.empty()) throw UsageError("{} {}: no slot is left", flag, shortened(text));
  return chosen;
}

SlotChoice first_slots(int count, Accelerator accelerator, const Machine& machine) {
  std::vector<int> slots(static_cast<size_t>(count));
  std::iota(slots.begin(), slots.end(), 0);
  return hostfile_slots(slots, accelerator, machine, /*share_gpus=*/false);
}

}  // namespace

void check_filters_agree(const LaunchOptions& options) {
  const bool include = !options.include.empty();
  const bool exclude = !options.exclude.empty();
  if (include && exclude)
    throw UsageError("--include {} and --exclude {} cannot be combined", shortened(options.include),
                     shortened(options.exclude));
  if ((include || exclude) && options.num_ranks)
    throw UsageError("--num_gpus {} and {} cannot be combined", *options.num_ranks,
                     include ? "--include" : "--exclude");
}

SlotChoice choose_slots(const LaunchOptions& options, Accelerator accelerator,
                        const Machine& machine) {
  check_filters_agree(options);
  const bool cuda = accelerator == Accelerator::kCuda;
  const auto num_gpus = static_cast<int>(machine.gpus.size());
  if (!options.include.empty() || !options.exclude.empty()) {
    const int num_slots = cuda ? num_gpus : static_cast<int>(machine.cores.size());
    SlotChoice choice = first_slots(num_slots, accelerator, machine);
    choice.slots = filter_slots(options, choice.slots);
    choice.num_ranks = static_cast<int>(choice.slots.size());
    return choice;
  }
  const int num_ranks = options.num_ranks.value_or(cuda ? num_gpus : 1);
  if (cuda && num_ranks > num_gpus) {
    if (!options.share_gpus)
      throw UsageError(
          "--num_gpus {}, but only {} GPU{} visible (--share-gpus lets several ranks use one)",
          num_ranks, num_gpus, num_gpus == 1 ? " is" : "s are");
    return {machine.gpus, num_ranks, true};
  }
  return first_slots(num_ranks, accelerator, machine);
}

SlotChoice hostfile_slots(const std::vector<int>& slots, Accelerator accelerator,
                          const Machine& machine, bool share_gpus) {
  SlotChoice choice{{}, static_cast<int>(slots.size()), false};
  const auto num_gpus = static_cast<int>(machine.gpus.size());
  for (const int slot : slots) {
    if (accelerator == Accelerator::kCpu) {
      choice.slots.push_back(std::to_string(slot));
    } else if (slot < num_gpus) {
      choice.slots.push_back(machine.gpus[static_cast<size_t>(slot)]);
    } else if (!share_gpus || num_gpus == 0) {
      throw UsageError(
          "slot {}, but only {} GPU{} visible on this host (--share-gpus lets several ranks use "
          "one)",
          slot, num_gpus, num_gpus == 1 ? " is" : "s are");
    } else {
      choice.shared = true;
    }
  }
  if (choice.slots.empty()) choice.slots = machine.gpus;
  return choice;
}

}  // namespace zeroth::launcher
