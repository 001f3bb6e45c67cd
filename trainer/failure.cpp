#include "trainer/failure.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <filesystem>
#include <new>
#include <string_view>

#include "base/error.h"

namespace zeroth::trainer {
namespace {

std::string first_line(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

Failure bug(std::string_view text) {
  return {kInternalErrorCode, fmt::format("internal error, a bug in Zeroth: {}", text)};
}

Failure explain(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    return {kUserErrorCode, fmt::format("error: {}", known.what())};
  } catch (const InternalError& broken) {
    return bug(broken.what());
  } catch (const c10::Error& torch) {
    return {kUserErrorCode, fmt::format("error: {}", first_line(torch.what_without_backtrace()))};
  } catch (const std::filesystem::filesystem_error& file) {
    return {kUserErrorCode,
            fmt::format("error: {}: {}", file.path1().string(), file.code().message())};
  } catch (const std::bad_alloc&) {
    return {kUserErrorCode,
            "error: out of host memory: fewer or shorter samples per micro-batch, recompute "
            "(--gradient-checkpointing), a higher zero stage or more ranks need less"};
  } catch (const std::exception& other) {
    return bug(other.what());
  } catch (...) {
    return bug("an exception of unknown type");
  }
}

}  // namespace

Failure describe(std::exception_ptr error, int rank, int world_size) {
  Failure failure = explain(error);
  const std::string who = world_size > 1 ? fmt::format("finetune: rank {}", rank) : "finetune";
  failure.message = fmt::format("{}: {}\n", who, failure.message);
  return failure;
}

}  // namespace zeroth::trainer
