#include "zero/param_store.h"

#include <algorithm>

#include "base/error.h"

namespace zeroth::zero {

Lease::~Lease() {
  if (store_ != nullptr) store_->end_lease(block_);
}

ParamStore::ParamStore(const UnitPlan& plan, const comm::Mesh& mesh, torch::Device device,
                       ParamStoreOptions options)
    : plan_(plan),
      mesh_(mesh),
      device_(device),
      options_(std::move(options)),
      buffers_(plan, options_.dtype, device),
      on_device_(offload::make_memory_store(device)),
      states_(plan.units.size()) {
  options_.rests.resize(plan.units.size(), nullptr);
  for (size_t unit = 0; unit < plan.units.size(); ++unit) {
    offload::ShardStore*& store = options_.rests[unit];
    if (store == nullptr) store = on_device_.get();
    states_[unit].holders = &mesh.sharing(plan.units[unit].copies);
    states_[unit].present = !released(unit);
    if (!released(unit)) continue;
    states_[unit].number = store->add(range(unit).size(), options_.dtype);
    if (options_.near_ranks == 1) continue;
    Near& near = states_[unit].near;
    near.run = &mesh.sharing_near(plan.units[unit].copies, options_.near_ranks);
    near.across = &mesh.sharing_across(plan.units[unit].copies, options_.near_ranks);
    near.shares = torch::empty({near.across->size() * range(unit).size()},
                               torch::TensorOptions(device).dtype(options_.dtype));
  }
}

ParamStore::~ParamStore() = default;

offload::Tile ParamStore::tile(size_t unit) const {
  return {states_[unit].number, 0, range(unit).size()};
}

bool ParamStore::on_device(size_t unit) const {
  return !released(unit) || options_.rests[unit] == on_device_.get();
}

// With one holder a share is all: what was copied to the device for the lease is the unit.
bool ParamStore::lent_whole(size_t unit) const {
  return plan_.units[unit].alone() && options_.staging && !on_device(unit);
}

offload::TileLease ParamStore::share(size_t unit, torch::Device device, offload::Access access,
                                     const std::optional<device::Point>& idle) {
  const bool lent = on_device(unit) && device != device_;
  const bool waits = on_device(unit) && order_written(unit);
  const Range own = range(unit);
  offload::TileLease lease =
      released(unit) ? options_.rests[unit]->borrow(tile(unit), lent ? device_ : device, access)
                     : offload::TileLease(buffers_.whole(unit).narrow(0, own.begin, own.size()));
  if (!lent) return lease;
  ZEROTH_CHECK(options_.staging, "unit {} lies on {}, asked for {}", plan_.units[unit].name,
               device_.str(), device.str());
  return options_.staging->lease(lease.tensor(), device, access,
                                 idle && !waits ? *idle : options_.staging->now(),
                                 &states_[unit].written);
}

torch::Tensor ParamStore::in_place(size_t unit) const {
  // With staging, an update on the host is written back to the device later.
  if (on_device(unit) && (!device_.is_cpu() || options_.staging)) return {};
  if (released(unit)) return options_.rests[unit]->in_place(states_[unit].number);
  const Range own = range(unit);
  return buffers_.whole(unit).narrow(0, own.begin, own.size());
}

std::vector<bool> ParamStore::present() const {
  std::vector<bool> present;
  for (const State& state : states_) present.push_back(state.present);
  return present;
}

Reads ParamStore::reads(const std::vector<size_t>& units) const {
  Reads reads;
  const std::set<offload::ShardStore*> all = stores();
  if (all == std::set<offload::ShardStore*>{on_device_.get()}) return reads;
  for (offload::ShardStore* store : all) reads[store];
  for (const size_t unit : units) reads[options_.rests[unit]].push_back(tile(unit));
  return reads;
}

void ParamStore::begin_gather(size_t unit) {
  State& state = states_[unit];
  if (state.present) return;
  const torch::NoGradGuard no_grad;
  if (state.near.run != nullptr) {
    buffers_.fill(unit);
    issue(unit, [&] { gather_near(unit); });
  } else {
    gather_from_all(unit);
  }
  state.present = true;
}

bool ParamStore::order_written(size_t unit) {
  if (!states_[unit].written) return false;
  options_.staging->order(std::exchange(states_[unit].written, {}));
  return true;
}

// What has to wait for an update, or for a copy, does so beside the current stream: only who uses
// the unit waits for its gather.
void ParamStore::issue(size_t unit, const std::function<void()>& gather) {
  State& state = states_[unit];
  const auto ordered = [&] {
    order_written(unit);
    state.gathered.order();
    gather();
  };
  if (!options_.staging || (!state.written && on_device(unit))) return ordered();
  state.written = options_.staging->beside({options_.staging->now()}, ordered);
}

void ParamStore::gather_from_all(size_t unit) {
  torch::Tensor own;
  if (released(unit)) own = read_share(unit);
  if (lent_whole(unit)) return;
  issue(unit, [&] {
    State& state = states_[unit];
    if (!released(unit)) own = share(unit, device_, offload::Access::kRead).tensor();
    // An alias with its own version counter: a graph kept from forward still refers to the
    // parameters.
    state.pending.push_back(state.holders->all_gather(
        buffers_.whole(unit).variable_data(), own, "parameters of " + plan_.units[unit].label()));
  });
}

// The first gather behind an update refreshes the near shares; all of them, that one too, go to
// near ranks alone. The shares of a run of holders lie behind each other in the unit.
void ParamStore::gather_near(size_t unit) {
  const std::string label = plan_.units[unit].label();
  Near& near = states_[unit].near;
  const int64_t share = range(unit).size();
  if (!near.fresh) {
    const offload::TileLease own =
        options_.rests[unit]->borrow(tile(unit), device_, offload::Access::kRead);
    near.across->all_gather(near.shares, own.tensor(), "near shares of " + label).wait();
    near.fresh = true;
  }
  const torch::Tensor whole = buffers_.whole(unit).variable_data();
  const int64_t run = near.run->size() * share;
  for (int64_t i = 0; i < near.across->size(); ++i) {
    states_[unit].pending.push_back(near.run->all_gather(whole.narrow(0, i * run, run),
                                                         near.shares.narrow(0, i * share, share),
                                                         "parameters of " + label));
  }
}

// Gives the buffer memory; `gathered` has what the gather reads.
torch::Tensor ParamStore::read_share(size_t unit) {
  if (reading_.size() >= options_.max_reads) end_gather(reading_.front());
  // What can fail comes before anything is counted.
  offload::TileLease gathered = options_.rests[unit]->borrow_ahead(tile(unit), device_);
  const torch::Tensor own = gathered.tensor();
  if (lent_whole(unit)) {
    buffers_.fill_with(unit, own.data_ptr());  // ordered where it is leased
  } else {
    buffers_.fill(unit);
    reading_.push_back(unit);
  }
  states_[unit].gathered = std::move(gathered);
  return own;
}

void ParamStore::end_gather(size_t unit) {
  for (comm::Pending& pending : states_[unit].pending) pending.wait();
  states_[unit].pending.clear();
  if (std::erase(reading_, unit) > 0) states_[unit].gathered = {};
}

Lease ParamStore::lease(size_t block) {
  for (const size_t unit : plan_.block_units[block]) {
    order_written(unit);  // not a wait for other ranks
    end_gather(unit);
    states_[unit].gathered.order();
    ++states_[unit].leases;
  }
  return Lease(*this, block);
}

void ParamStore::end_lease(size_t block) {
  for (const size_t unit : plan_.block_units[block]) --states_[unit].leases;
}

void ParamStore::release(size_t unit) {
  State& state = states_[unit];
  if (!state.present || !released(unit)) return;
  end_gather(unit);
  buffers_.release(unit);
  state.gathered = {};
  state.present = false;
}

void ParamStore::release_all_but(const std::vector<size_t>& kept) {
  for (size_t unit = 0; unit < states_.size(); ++unit) {
    const bool keep = std::find(kept.begin(), kept.end(), unit) != kept.end();
    if (!keep && states_[unit].leases == 0) release(unit);
  }
}

void ParamStore::updated(size_t unit, const device::Point& written) {
  State& state = states_[unit];
  ZEROTH_CHECK(state.leases == 0, "unit {} is updated while leased", plan_.units[unit].name);
  release(unit);
  state.near.fresh = false;
  if (plan_.units[unit].retention == Retention::kRefresh) {
    end_gather(unit);
    state.present = false;
  }
  if (written && on_device(unit)) state.written = written;
}

int64_t ParamStore::resting_bytes() const {
  int64_t bytes = buffers_.kept_bytes();
  for (const State& state : states_) {
    if (state.near.shares.defined()) bytes += static_cast<int64_t>(state.near.shares.nbytes());
  }
  for (const offload::ShardStore* store : stores()) {
    bytes += store->bytes().device + store->bytes().host;
  }
  return bytes;
}

std::set<offload::ShardStore*> ParamStore::stores() const {
  return {options_.rests.begin(), options_.rests.end()};
}

}  // namespace zeroth::zero
