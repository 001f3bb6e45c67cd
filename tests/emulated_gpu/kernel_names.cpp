#include "tests/emulated_gpu/kernel_names.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>

#include "tests/emulated_gpu/emulation.h"

namespace zeroth::emulated {
namespace {

// "void zeroth::model::(anonymous namespace)::kernel<T>(Call)" without what stands around the name.
std::string short_name(const char* symbol) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> demangled(
      abi::__cxa_demangle(symbol, nullptr, nullptr, &status), std::free);
  if (status != 0) return symbol;
  std::string name = demangled.get();
  const std::string unnamed = "(anonymous namespace)::";
  for (size_t at; (at = name.find(unnamed)) != std::string::npos;) name.erase(at, unnamed.size());
  size_t end = 0;
  for (int depth = 0; end < name.size() && (name[end] != '(' || depth > 0); ++end) {
    depth += name[end] == '<' ? 1 : name[end] == '>' ? -1 : 0;
  }
  name.resize(end);
  const size_t arguments = std::min(name.find('<'), name.size());
  const size_t begin = name.find_last_of(": ", arguments) + 1;
  for (size_t at; (at = name.find("zeroth::", begin)) != std::string::npos;) {
    const size_t last = name.find_last_of(':', name.find_first_of(",>", at));
    name.erase(at, last + 1 - at);
  }
  return name.substr(begin);
}

// The functions of a file, by their addresses in it.
std::map<uintptr_t, std::string> functions_of(const char* path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const auto* const at = bytes.data();
  const auto* const header = reinterpret_cast<const Elf64_Ehdr*>(at);
  std::map<uintptr_t, std::string> functions;
  if (bytes.size() < sizeof *header) return functions;
  const auto* const sections = reinterpret_cast<const Elf64_Shdr*>(at + header->e_shoff);
  for (int i = 0; i < header->e_shnum; ++i) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    const char* const names = at + sections[sections[i].sh_link].sh_offset;
    const auto* const symbols = reinterpret_cast<const Elf64_Sym*>(at + sections[i].sh_offset);
    for (size_t k = 0; k < sections[i].sh_size / sizeof *symbols; ++k) {
      const std::string name = names + symbols[k].st_name;
      const bool part = name.find('.') != std::string::npos || name.starts_with("_ZZ");
      if (ELF64_ST_TYPE(symbols[k].st_info) == STT_FUNC && symbols[k].st_size > 0 && !part) {
        functions[symbols[k].st_value] = name;
      }
    }
  }
  return functions;
}

struct Known {
  std::mutex mutex;
  std::map<const void*, int64_t> launches = {};
  uintptr_t base = 0;  // of the file that the first kernel is in
  std::map<uintptr_t, std::string> functions = {};

  void read(const void* kernel) {
    Dl_info info;
    if (!functions.empty() || dladdr(kernel, &info) == 0) return;
    const auto file = reinterpret_cast<uintptr_t>(info.dli_fbase);
    functions = functions_of(info.dli_fname);
    const auto* const header = reinterpret_cast<const Elf64_Ehdr*>(info.dli_fbase);
    base = header->e_type == ET_EXEC ? 0 : file;
  }
};

Known& known() {
  static Known all;
  return all;
}

}  // namespace

std::string name_of_kernel(const void* kernel) {
  Known& all = known();
  const std::lock_guard lock(all.mutex);
  all.read(kernel);
  const auto found = all.functions.find(reinterpret_cast<uintptr_t>(kernel) - all.base);
  return found == all.functions.end() ? "a kernel without a symbol"
                                      : short_name(found->second.c_str());
}

void count_launch(const void* kernel) {
  Known& all = known();
  const std::lock_guard lock(all.mutex);
  ++all.launches[kernel];
}

int64_t launches() {
  Known& all = known();
  const std::lock_guard lock(all.mutex);
  int64_t sum = 0;
  for (const auto& [kernel, count] : all.launches) sum += count;
  return sum;
}

std::vector<Instance> instances_of(const std::string& kernel) {
  Known& all = known();
  const std::lock_guard lock(all.mutex);
  if (!all.launches.empty()) all.read(all.launches.begin()->first);
  std::vector<Instance> instances;
  for (const auto& [address, symbol] : all.functions) {
    if (symbol.find(kernel) == std::string::npos) continue;
    const std::string name = short_name(symbol.c_str());
    if (name != kernel && !name.starts_with(kernel + "<")) continue;
    const auto launches = all.launches.find(reinterpret_cast<const void*>(address + all.base));
    instances.push_back({name, launches == all.launches.end() ? 0 : launches->second});
  }
  return instances;
}

}  // namespace zeroth::emulated
