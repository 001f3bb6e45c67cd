#include "base/files/file_appender.h"

#include <fcntl.h>

#include "base/machine/file_descriptor.h"
#include "tests/support/temp_folder.h"

namespace zeroth::file_appender_test {

TEST_CASE("All bytes are in the file after the flush, in order") {
  TempFolder directory;
  const auto path = directory.write("f", "");
  const FileDescriptor file(::open(path.c_str(), O_WRONLY));
  FileAppender appender(file.get(), "f");
  std::string expected;
  for (int i = 0; i < 300'000; ++i) {
    const std::string part = std::to_string(i);
    appender.append(part);
    expected += part;
  }
  CHECK(appender.bytes() == static_cast<int64_t>(expected.size()));
  CHECK(read_text(path).size() < expected.size());
  appender.flush();
  CHECK(read_text(path) == expected);
}

TEST_CASE("A file that cannot be written is a WriteError with its name and the reason") {
  const FileDescriptor file(::open("/dev/full", O_WRONLY));
  FileAppender appender(file.get(), "the file");
  appender.append("x");
  CHECK(message_of<WriteError>([&] { appender.flush(); }) ==
        "the file cannot be written: No space left on device");
}

}  // namespace zeroth::file_appender_test
