#include "base/error.h"

#include <doctest/doctest.h>

#include <cerrno>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <system_error>

namespace zeroth::describe_exception_test {
namespace {

template <typename Action>
std::string message_of(Action action) {
  try {
    action();
  } catch (const std::exception& error) {
    return describe_exception(error);
  }
  return "no exception";
}

}  // namespace

TEST_CASE("what we throw says what it says") {
  CHECK(message_of([] { throw Error("out: full"); }) == "out: full");
  CHECK(message_of([] { ZEROTH_CHECK(1 == 2, "two"); }).ends_with("check failed: 1 == 2: two"));
}

TEST_CASE("show_written: no text of the standard library's reaches a user") {
  CHECK(message_of([] { (void)std::filesystem::file_size("/no/such"); }) ==
        "/no/such: No such file or directory");
  CHECK(message_of([] { (void)std::filesystem::absolute(""); }) ==
        "the working folder: Invalid argument");
  CHECK(message_of([] {
          throw std::system_error(EAGAIN, std::generic_category(), "thread");
        }).starts_with("Resource temporarily unavailable"));
  CHECK(message_of([] { throw std::bad_alloc(); }).starts_with("out of memory"));
  CHECK(message_of([] { (void)std::stoi("x"); }) == "an unexpected failure: \"stoi\"");
}

}  // namespace zeroth::describe_exception_test
