#include "trainer/failure.h"

#include <c10/util/Exception.h>
#include <doctest/doctest.h>

#include <filesystem>
#include <new>
#include <stdexcept>
#include <system_error>

#include "base/error.h"

namespace zeroth::trainer::failure_test {

TEST_CASE("an error of the user is told as it is, with the rank when there are several") {
  const auto error = std::make_exception_ptr(Error("no file {}", "x"));
  CHECK(describe(error, 0, 1).message == "finetune: error: no file x\n");
  CHECK(describe(error, 1, 2).message == "finetune: rank 1: error: no file x\n");
  CHECK(describe(error, 1, 2).code == 1);
}

TEST_CASE(
    "what the user wrote has its own exit code, in the first round and where nobody else ends") {
  const auto code = [](const RestartAttempt& round, const auto& thrown) {
    try {
      rethrow_as_usage_error(round, [&]() -> int { throw thrown; });
    } catch (...) {
      return describe(std::current_exception(), 0, 1).code;
    }
    return 0;
  };
  RestartAttempt later;
  later.index = 1;
  CHECK(code({}, Error("no file {}", "x")) == 2);
  CHECK(code(later, Error("no file {}", "x")) == 1);
  CHECK(code(later, UsageError("no flag {}", "x")) == 2);
  CHECK(code({}, OutputInUse("{} is taken", "out")) == 1);
  const auto too_long = std::make_error_code(std::errc::filename_too_long);
  CHECK(code({}, std::filesystem::filesystem_error("status", "out", too_long)) == 2);
  CHECK(code({}, InternalError("a.cpp:3: x")) == 70);
  CHECK(code({}, std::bad_alloc()) == 1);
  CHECK(rethrow_as_usage_error({}, [] { return 7; }) == 7);
}

TEST_CASE("no control byte of a name reaches the terminal, and nothing within it begins a line") {
  const auto error = std::make_exception_ptr(Error("2 errors\n  no file \x1b[2Jx\xff\n  y"));
  CHECK(describe(error, 0, 1).message ==
        "finetune: error: 2 errors\n  no file \\u001b[2Jx\\xff\n  y\n");
  const auto fake = std::make_exception_ptr(Error("no file x\nfinetune: saved"));
  CHECK(describe(fake, 0, 1).message == "finetune: error: no file x\\nfinetune: saved\n");
}

TEST_CASE("a broken invariant is called a bug and has its own exit code") {
  const Failure failure = describe(std::make_exception_ptr(InternalError("a.cpp:3: x")), 0, 1);
  CHECK(failure.message == "finetune: internal error, a bug in Zeroth: a.cpp:3: x\n");
  CHECK(failure.code == 70);
  CHECK(describe(std::make_exception_ptr(3), 0, 1).code == 70);
}

TEST_CASE("of an error of torch the first line is quoted behind our words") {
  std::exception_ptr error;
  try {
    TORCH_CHECK(false, "sizes differ\nframe 1\nframe 2");
  } catch (...) {
    error = std::current_exception();
  }
  CHECK(describe(error, 0, 1).message == "finetune: error: LibTorch failed: \"sizes differ\"\n");
}

TEST_CASE("a file that the system refuses is the user's error, with its path and reason") {
  std::exception_ptr error;
  try {
    static_cast<void>(std::filesystem::exists("/" + std::string(300, 'x')));
  } catch (...) {
    error = std::current_exception();
  }
  const Failure failure = describe(error, 0, 1);
  CHECK(failure.code == 1);
  CHECK(failure.message == "finetune: error: /" + std::string(300, 'x') + ": File name too long\n");
}

TEST_CASE("what the system or oneDNN refuses for lack of something is no bug of ours") {
  const std::system_error thread(std::make_error_code(std::errc::resource_unavailable_try_again));
  const Failure refused = describe(std::make_exception_ptr(thread), 0, 1);
  CHECK(refused.code == 1);
  CHECK(refused.message.starts_with("finetune: error: Resource temporarily unavailable"));
  const std::runtime_error primitive("could not execute a primitive");
  const Failure product = describe(std::make_exception_ptr(primitive), 0, 1);
  CHECK(product.code == 1);
  CHECK(product.message ==
        "finetune: error: a matrix product failed, most often for lack of memory: oneDNN says "
        "\"could not execute a primitive\"\n");
  const std::out_of_range library("vector::_M_range_check");
  CHECK(describe(std::make_exception_ptr(library), 0, 1).message ==
        "finetune: internal error, a bug in Zeroth: unexpected exception: "
        "\"vector::_M_range_check\"\n");
}

TEST_CASE("lack of memory says what needs less") {
  const Failure failure = describe(std::make_exception_ptr(std::bad_alloc()), 0, 1);
  CHECK(failure.message.find("out of host memory") != std::string::npos);
  CHECK(failure.code == 1);
}

}  // namespace zeroth::trainer::failure_test
