#include "trainer/failure.h"

#include <c10/util/Exception.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <new>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/machine/process_limits.h"
#include "base/text/printable.h"
#include "base/text/units.h"

namespace zeroth::trainer {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// Parses "20.00 MiB" or "4096 bytes" after `mark`, as LibTorch writes sizes.
std::optional<int64_t> parse_size_after(const std::string& text, std::string_view mark) {
  const size_t at = text.find(mark);
  if (at == std::string::npos) return std::nullopt;
  std::istringstream words(text.substr(at + mark.size()));
  double number = 0;
  std::string unit;
  if (!(words >> number >> unit)) return std::nullopt;
  constexpr std::array<std::pair<std::string_view, int>, 4> kUnits = {
      {{"bytes", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}}};
  for (const auto& [name, power] : kUnits) {
    if (unit.starts_with(name)) return std::llround(std::ldexp(number, power));
  }
  return std::nullopt;
}

FailedAllocation host_allocation(std::optional<int64_t> requested) {
  const FreeMemory left = free_host_memory();
  return {.requested = requested, .free = left.bytes, .limit = left.limit};
}

Failure user_error(std::string_view text) {
  return {kUserErrorCode, fmt::format("error: {}", text)};
}

Failure internal_failure(std::string_view text) {
  return {kInternalErrorCode, fmt::format("internal error, a bug in Zeroth: {}", text)};
}

std::string limit_in_parentheses() {
  const std::string limit = address_space_limit();
  return limit.empty() ? "" : fmt::format(" ({})", limit);
}

// Returns whether oneDNN wrote the text ("could not execute a primitive"): no header of LibTorch
// declares the type of its errors.
bool is_onednn_error(std::string_view text) {
  return text.starts_with("could not ");
}

Failure explain(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const UsageError& wrong) {
    return {kUsageExitCode, fmt::format("error: {}", wrong.what())};
  } catch (const Error& known) {
    return user_error(known.what());
  } catch (const InternalError& broken) {
    return internal_failure(broken.what());
  } catch (const c10::Error& torch) {
    return user_error("LibTorch failed: " + quotation(torch.what_without_backtrace()));
  } catch (const std::system_error& system) {  // mostly a thread that cannot be started
    return user_error(describe_exception(system));
  } catch (const std::bad_alloc&) {
    const FreeMemory left = free_host_memory();
    return user_error(
        fmt::format("out of host memory, {} free ({}). Use fewer or shorter samples per "
                    "micro-batch, recompute (--gradient-checkpointing), a higher ZeRO stage or "
                    "more ranks",
                    format_bytes(left.bytes), left.limit));
  } catch (const std::exception& other) {
    if (!is_onednn_error(other.what()))
      return internal_failure("unexpected exception: " + quotation(other.what()));
    return user_error(
        fmt::format("a matrix product failed, most often for lack of memory{}: oneDNN says {}",
                    limit_in_parentheses(), quotation(other.what())));
  } catch (...) {
    return internal_failure("an exception of unknown type");
  }
}

}  // namespace

Failure describe(std::exception_ptr error, int rank, int world_size) {
  Failure failure = explain(error);
  const std::string who = world_size > 1 ? fmt::format("finetune: rank {}", rank) : "finetune";
  failure.message = printable_message(fmt::format("{}: {}\n", who, failure.message));
  return failure;
}

FreeMemory free_host_memory() {
  const ProcessMemory own = process_memory();
  FreeMemory left = free_memory().value_or(FreeMemory{kUnlimited, ""});
  left.bytes = std::max<int64_t>(0, left.bytes - (own.peak - own.resident));
  const auto addresses = free_address_space();
  return addresses && addresses->bytes < left.bytes ? *addresses : left;
}

std::optional<FailedAllocation> failed_allocation(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::OutOfMemoryError& gpu) {
    const std::string text = gpu.what_without_backtrace();
    return FailedAllocation{.on_gpu = true,
                            .requested = parse_size_after(text, "Tried to allocate "),
                            .free = parse_size_after(text, "of which ")};
  } catch (const OutOfHostMemory& host) {
    return host_allocation(host.bytes());
  } catch (const c10::Error& torch) {
    const std::string text = torch.what_without_backtrace();
    if (text.find("DefaultCPUAllocator: ") == std::string::npos) return std::nullopt;
    return host_allocation(parse_size_after(text, "you tried to allocate "));
  } catch (const std::bad_alloc&) {
    return host_allocation(std::nullopt);
  } catch (...) {
    return std::nullopt;
  }
}

std::string out_of_memory_message(const FailedAllocation& failed, const std::string& operation,
                                  const std::vector<std::string>& remedies) {
  const auto bytes = [](const std::optional<int64_t>& size) {
    return size ? fmt::format("{} ({} bytes)", format_bytes(*size), *size) : "an unknown number";
  };
  std::string text = fmt::format("out of {} memory{}{}: {} requested, {} free",
                                 failed.on_gpu ? "GPU" : "host", operation.empty() ? "" : " in ",
                                 operation, bytes(failed.requested), bytes(failed.free));
  if (!failed.limit.empty()) text += fmt::format(" ({})", failed.limit);
  if (!remedies.empty()) {
    text += fmt::format("; to use less memory:\n  {}", fmt::join(remedies, "\n  "));
  }
  return text;
}

}  // namespace zeroth::trainer
