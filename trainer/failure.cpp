#include "trainer/failure.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <filesystem>
#include <new>
#include <string_view>
#include <system_error>

#include "base/describe_exception.h"
#include "base/machine/process_limits.h"
#include "base/text/printable.h"
#include "base/text/units.h"
#include "trainer/out_of_memory.h"

namespace zeroth::trainer {
namespace {

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
    return {kUserErrorCode, fmt::format("error: {}", known.what())};
  } catch (const InternalError& broken) {
    return internal_failure(broken.what());
  } catch (const c10::Error& torch) {
    return {kUserErrorCode,
            fmt::format("error: LibTorch failed: {}", quotation(torch.what_without_backtrace()))};
  } catch (const std::filesystem::filesystem_error& file) {
    return {kUserErrorCode, fmt::format("error: {}", describe_exception(file))};
  } catch (const std::system_error& system) {  // mostly a thread that cannot be started
    return {kUserErrorCode, fmt::format("error: {}{}", system_reason(system.code().value()),
                                        limit_in_parentheses())};
  } catch (const std::bad_alloc&) {
    const FreeMemory left = free_host_memory();
    return {kUserErrorCode,
            fmt::format("error: out of host memory, {} free ({}). Use fewer or shorter samples per "
                        "micro-batch, recompute (--gradient-checkpointing), a higher ZeRO stage or "
                        "more ranks",
                        format_bytes(left.bytes), left.limit)};
  } catch (const std::exception& other) {
    if (!is_onednn_error(other.what()))
      return internal_failure("unexpected exception: " + quotation(other.what()));
    return {kUserErrorCode,
            fmt::format("error: a matrix product failed, most often for lack of memory{}: oneDNN "
                        "says {}",
                        limit_in_parentheses(), quotation(other.what()))};
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

}  // namespace zeroth::trainer
