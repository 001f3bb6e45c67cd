#include "model/hf/output_directory.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include "base/error.h"
#include "tests/support/second_user.h"
#include "tests/support/temp_folder.h"

namespace zeroth::model::output_directory_test {

namespace fs = std::filesystem;

namespace {

// "out" in it, which holds a model.
fs::path with_model(const TempFolder& directory, const std::string& config) {
  fs::path target = directory.path() / "out";
  fs::create_directory(target);
  write_text(target / "config.json", config);
  return target;
}

// What a message names last.
fs::path kept_folder(const std::string& message) {
  return message.substr(message.rfind(' ') + 1);
}

}  // namespace

TEST_CASE("a folder that is not empty is refused by name, unless it may be overwritten") {
  const TempFolder directory;
  const fs::path target = directory.path() / "out";
  CHECK_NOTHROW(OutputDirectory::check(target, false));
  fs::create_directory(target);
  CHECK_NOTHROW(OutputDirectory::check(target, false));
  write_text(target / "train_log.html", "of a run that was stopped");
  write_text(target / "trace.json.part", "of a run that was killed");
  CHECK_NOTHROW(OutputDirectory::check(target, false));
  write_text(target / "a", "");
  CHECK(message_of<Error>([&] {
          OutputDirectory::check(target, false);
        }).find(target.string() + " is not empty") == 0);
  CHECK_NOTHROW(OutputDirectory::check(target, true));
  CHECK(message_of<Error>([&] {
          OutputDirectory::check(target / "a", true);
        }).find("is not a folder") != std::string::npos);
}

TEST_CASE("commit puts the files in place, also onto an empty folder and with a trailing slash") {
  const TempFolder directory;
  fs::create_directory(directory.path() / "empty");
  for (const char* name : {"new/", "empty", "deep/er"}) {
    OutputDirectory output(directory.path() / name, false);
    write_text(output.path() / "config.json", "1");
    output.commit();
    CHECK(read_text(directory.path() / name / "config.json") == "1");
  }
  CHECK(std::distance(fs::directory_iterator(directory.path()), {}) == 3);
}

TEST_CASE("overwriting replaces a model wholly and keeps other files") {
  const TempFolder directory;
  const fs::path target = with_model(directory, "old");
  write_text(target / "model-00001-of-00002.safetensors", "old");
  write_text(target / "model.safetensors.index.json", "old");
  write_text(target / "metrics.jsonl", "mine");
  OutputDirectory output(target, true);
  write_text(output.path() / "config.json", "new");
  write_text(output.path() / "model.safetensors", "new");
  output.commit();
  CHECK(read_text(target / "config.json") == "new");
  CHECK(read_text(target / "metrics.jsonl") == "mine");
  CHECK_FALSE(fs::exists(target / "model.safetensors.index.json"));
  CHECK_FALSE(fs::exists(target / "model-00001-of-00002.safetensors"));
  CHECK(std::distance(fs::directory_iterator(directory.path()), {}) == 1);
}

TEST_CASE("a model that was replaced can be put back, with all other files; else it goes") {
  const TempFolder directory;
  const fs::path target = with_model(directory, "old");
  write_text(target / "notes", "mine");
  const auto replace = [&] {
    OutputDirectory output(target, true);
    write_text(output.path() / "config.json", "new");
    return output.commit();
  };
  auto previous = replace();
  CHECK(read_text(target / "config.json") == "new");
  CHECK(read_text(target / "notes") == "mine");
  write_text(target / "later", "mine");
  const fs::path aside = previous->restore();
  previous.reset();
  OutputDirectory::cleanup_leftovers(target);
  CHECK(read_text(aside / "config.json") == "new");
  for (const char* name : {"notes", "later"}) CHECK(read_text(target / name) == "mine");
  CHECK(read_text(target / "config.json") == "old");
  CHECK(std::distance(fs::directory_iterator(directory.path()), {}) == 2);

  CHECK(replace() != nullptr);
  CHECK(read_text(target / "config.json") == "new");
  CHECK(std::distance(fs::directory_iterator(directory.path()), {}) == 2);
}

TEST_CASE("a kill while the former model is kept leaves the new one, and the former is cleared") {
  const TempFolder directory;
  const fs::path target = with_model(directory, "old");
  {
    OutputDirectory output(target, true);
    write_text(output.path() / "config.json", "new");
    [[maybe_unused]] const PreviousModel* killed = output.commit().release();
  }
  CHECK(std::distance(fs::directory_iterator(directory.path()), {}) == 2);
  OutputDirectory::cleanup_leftovers(target);
  CHECK(read_text(target / "config.json") == "new");
  CHECK(std::distance(fs::directory_iterator(directory.path()), {}) == 1);
}

TEST_CASE("who may no longer write leaves the model of another, and nothing beside it") {
  const TempFolder directory;
  const fs::path target = with_model(directory, "of the next round");
  {
    OutputDirectory output(target, true);
    write_text(output.path() / "config.json", "late");
    CHECK_THROWS_AS(output.commit([] { throw OutputTakenOver("taken over"); }), OutputTakenOver);
  }
  CHECK(read_text(target / "config.json") == "of the next round");
  CHECK(std::distance(fs::directory_iterator(directory.path()), {}) == 1);
}

TEST_CASE("what is no model leaves nothing to be put back") {
  const TempFolder directory;
  const fs::path target = directory.path() / "out";
  fs::create_directory(target);
  write_text(target / "train_log.html", "of this run");
  OutputDirectory output(target, false);
  write_text(output.path() / "config.json", "new");
  CHECK(output.commit() == nullptr);
  CHECK(read_text(target / "train_log.html") == "of this run");
  CHECK(std::distance(fs::directory_iterator(directory.path()), {}) == 1);
}

TEST_CASE("files that came meanwhile stay; a model that came meanwhile is not replaced") {
  const TempFolder directory;
  const fs::path target = directory.path() / "out";
  std::string said;
  {
    OutputDirectory output(target, false);
    write_text(output.path() / "config.json", "ours");
    fs::create_directory(target);
    write_text(target / "log", "x");
    output.commit();
    CHECK(read_text(target / "log") == "x");
    CHECK(read_text(target / "config.json") == "ours");
  }
  fs::remove_all(target);
  {
    OutputDirectory output(target, false);
    write_text(output.path() / "config.json", "ours");
    fs::create_directory(target);
    write_text(target / "config.json", "theirs");
    said = message_of<Error>([&] { output.commit(); });
  }
  CHECK(said.find("holds another model now") != std::string::npos);
  CHECK(read_text(target / "config.json") == "theirs");
  CHECK(read_text(kept_folder(said) / "config.json") == "ours");
}

TEST_CASE("a place that cannot be written is named with the reason") {
  const std::string said =
      message_of<Error>([] { OutputDirectory output("/proc/no/where", false); });
  CHECK(said.find("/proc/no/where cannot be created: cannot create a folder in /proc: ") == 0);
}

TEST_CASE("an output that cannot be made is refused before anything is written") {
  const TempFolder directory;
  write_text(directory.path() / "file", "");
  fs::create_directory_symlink(directory.path() / "nothing", directory.path() / "link");
  const auto refusal = [](const fs::path& target) {
    return message_of<Error>([&] { OutputDirectory::check(target, true); });
  };
  const fs::path inside = directory.path() / "file" / "x";
  CHECK(refusal(inside) == inside.string() + " cannot be created: " +
                               (directory.path() / "file").string() + " is not a folder");
  CHECK(refusal(inside / "y").ends_with("file is not a folder"));
  CHECK(refusal("/proc/x").find("/proc/x cannot be created: cannot create a folder in /proc: ") ==
        0);
  CHECK(refusal("/proc").find("/proc is a mount point") == 0);
  CHECK(refusal(directory.path() / "link").ends_with("is a broken link"));
  CHECK(refusal(directory.path() / std::string(250, 'a')).ends_with("File name too long"));
  CHECK(refusal(directory.path() / std::string(300, 'a')).ends_with("File name too long"));
  CHECK(refusal(directory.path() / "a" / std::string(5000, 'b')).ends_with("File name too long"));
  CHECK(refusal(directory.path() / "deep" / "er") == "no exception");
  CHECK(std::distance(fs::directory_iterator(directory.path()), {}) == 2);
}

TEST_CASE("a folder where nothing may be made is refused before anything is written") {
  if (::geteuid() == 0) return;  // whom no permission stops
  const TempFolder directory;
  const fs::path closed = directory.path() / "closed";
  fs::create_directories(closed / "empty");
  fs::permissions(closed, fs::perms::owner_read | fs::perms::owner_exec);
  for (const char* name : {"x", "x/y", "empty"}) {
    CHECK(message_of<Error>([&] {
            OutputDirectory::check(closed / name, false);
          }).ends_with("cannot create a folder in " + closed.string() + ": Permission denied"));
  }
  fs::permissions(closed, fs::perms::none);
  CHECK(message_of<Error>([&] {
          OutputDirectory::check(closed / "x", false);
        }).ends_with("Permission denied"));
  fs::permissions(closed, fs::perms::owner_all);
}

TEST_CASE("an output that another user has put into a shared folder is refused" * in_neighbours) {
  const StickyFolder shared;
  const fs::path victim = shared.own("victim");
  const bool planted = as_nobody([&] {
    return ::symlink(victim.c_str(), (shared / "link").c_str()) == 0 &&
           fs::create_directory(shared / "theirs");
  });
  if (!planted) return;
  const auto refusal = [](const fs::path& target) {
    return message_of<Error>([&] { OutputDirectory::check(target, true); });
  };
  const std::string link = (shared / "link").string();
  CHECK(refusal(shared / "link/x").find(link + " is a link of another user (uid 65534)") !=
        std::string::npos);
  CHECK(refusal(shared / "link").find(link + " is a link of another user (uid 65534)") !=
        std::string::npos);
  CHECK(refusal(shared / "theirs")
            .find("theirs belongs to another user (uid 65534), in a world-writable "
                  "folder") != std::string::npos);
  CHECK(message_of<Error>([&] { OutputDirectory(shared / "link", true); }) != "no exception");
  CHECK(fs::is_empty(victim));
  fs::permissions(shared.path(), fs::perms{0755});
  CHECK(refusal(shared / "theirs") == "no exception");
}

TEST_CASE("a link that comes in the place of the output meanwhile is not written through") {
  const TempFolder directory;
  fs::create_directory(directory.path() / "victim");
  write_text(directory.path() / "victim/diary.txt", "x");
  OutputDirectory output(directory.path() / "out", true);
  write_text(output.path() / "config.json", "ours");
  fs::create_directory_symlink("victim", directory.path() / "out");
  const std::string said = message_of<Error>([&] { output.commit(); });
  CHECK(said.find("out is a link now: the new model is complete and stays in ") !=
        std::string::npos);
  CHECK(read_text(kept_folder(said) / "config.json") == "ours");
  CHECK(read_text(directory.path() / "victim/diary.txt") == "x");
}

TEST_CASE("overwriting leaves no file of the old model, only foreign ones") {
  const TempFolder directory;
  const fs::path target = directory.path() / "out";
  fs::create_directory(target);
  for (const char* name : {"tokenizer.json", "chat_template.jinja", "generation_config.json",
                           "adapter_config.json", "pytorch_model.bin", "README.md"}) {
    write_text(target / name, "old");
  }
  OutputDirectory output(target, true);
  write_text(output.path() / "tokenizer_config.json", "new");
  output.commit();
  CHECK(read_text(target / "README.md") == "old");
  CHECK(read_text(target / "tokenizer_config.json") == "new");
  CHECK(std::distance(fs::directory_iterator(target), {}) == 2);
}

TEST_CASE("a complete model that cannot be put in place is kept, and said where") {
  const TempFolder directory;
  const fs::path target = directory.path() / "out";
  std::string said;
  {
    OutputDirectory output(target, false);
    write_text(output.path() / "config.json", "ours");
    write_text(target, "a file by now");
    said = message_of<Error>([&] { output.commit(); });
  }
  OutputDirectory::cleanup_leftovers(target);
  CHECK(said.find(": the new model is complete and stays in ") != std::string::npos);
  CHECK(read_text(kept_folder(said) / "config.json") == "ours");
}

}  // namespace zeroth::model::output_directory_test
