#include "engine/problem.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "core/arithmetic.hpp"
#include "core/errors.hpp"
#include "core/parts.hpp"
#include "engine/device.hpp"

namespace memkern {
namespace {

// Rows of different workers share no page, so that each row is on its worker's node and no cache
// line is written by two workers.
constexpr std::int64_t kRowAlign_B = 4096;
constexpr std::int64_t kMaxOffset_B = std::int64_t{1} << 20;
// Indices that are copied to a device at once.
constexpr std::int64_t kPiece = std::int64_t{1} << 20;
// Elements on a device are copied together with the bytes between them up to this number: copying
// them takes less time than starting another copy.
constexpr std::int64_t kMaxGap_B = std::int64_t{1} << 16;
constexpr std::int64_t kMaxSpan_B = std::int64_t{1} << 26;

template <class T>
void fill_part(std::byte* row, Range columns, std::uint32_t salt) {
  T* values = reinterpret_cast<T*>(row);
  for (std::int64_t i = columns.begin; i < columns.end; ++i) {
    values[i] = static_cast<T>(fill_value(static_cast<std::uint32_t>(i), salt));
  }
}

// Rows without padding in between count as one.
struct Shape {
  std::int64_t rows;
  std::int64_t row_B;
  std::int64_t stride_B;
};
Shape shape_in_memory(const Array& a) {
  const std::int64_t size = dtype_size(a.type);
  if (a.row_stride == a.columns) return {1, a.rows * a.columns * size, 0};
  return {a.rows, a.columns * size, a.row_stride * size};
}

void fill_part(DType type, std::byte* row, Range columns, std::uint32_t salt) {
  with_type(type, [&]<class T>(T) { fill_part<T>(row, columns, salt); });
}

// The array of this name among index arrays or data, null if there is none.
template <class Entry>
const Array* find_array(const std::vector<Entry>& entries, const std::string& name) {
  for (const Entry& e : entries) {
    if (e.array.name == name) return &e.array;
  }
  return nullptr;
}

std::map<std::string, Factory>& families() {
  static std::map<std::string, Factory> all;
  return all;
}

Factory find_family(const std::string& family) {
  const auto found = families().find(family);
  if (found != families().end()) return found->second;
  std::string known;
  for (const auto& [name, factory] : families()) known += (known.empty() ? "" : ", ") + name;
  throw InputError("there is no kernel family '" + family + "': there are " + known);
}

}  // namespace

Problem::Problem(const Declaration& declaration, const Team& team, const Placement& placement)
    : kernel_(declaration.kernel),
      declared_(arrays_of(declaration)),
      team_(team),
      arena_(team, placement),
      offset_B_(placement.offset_B),
      workers_(placement.device == nullptr ? team.size() : placement.workers) {
  if (offset_B_ < 0 || offset_B_ % 8 != 0 || offset_B_ > kMaxOffset_B) {
    throw InputError("offset must be a multiple of 8 bytes from 0 to " +
                     std::to_string(kMaxOffset_B) + ", not " + std::to_string(offset_B_));
  }
}

const Array& Problem::array(const std::string& name) const {
  for (const Array& a : arrays_) {
    if (a.name == name) return a;
  }
  throw InputError("kernel '" + kernel_ + "' has no array '" + name + "'");
}

const Array& Problem::any_array(const std::string& name) const {
  if (const Array* found = find_array(indices_, name)) return *found;
  if (const Array* found = find_array(data_, name)) return *found;
  return array(name);
}

const std::string& Problem::obtained_pages() {
  if (obtained_pages_.empty()) obtained_pages_ = arena_.obtained_pages();
  return obtained_pages_;
}

std::int64_t Problem::footprint_B() const {
  std::int64_t sum = 0;
  for (const Array& a : arrays_) sum += a.rows * a.columns * dtype_size(a.type);
  for (const Indices& i : indices_) sum += i.array.columns * dtype_size(i.array.type);
  for (const Data& d : data_) sum += d.array.columns * dtype_size(d.array.type);
  return sum;
}

Array Problem::request(const std::string& name, DType type, std::int64_t columns, std::int64_t rows,
                       const Boundaries& boundaries, std::int64_t tail, bool pooled) {
  Array a;
  a.name = name;
  a.type = type;
  a.rows = rows;
  a.columns = columns;
  a.memory = device();
  const std::int64_t size = dtype_size(type);
  const char* what = "an array's size";
  const std::int64_t row_B = checked_mul(checked_add(columns, tail, what), size, what);
  a.offset_B = ++requests_ * offset_B_;
  const std::int64_t reach_B = checked_add(row_B, a.offset_B, what);
  // Every row has its own offset; otherwise it would end in the first page of the next row. Rows on
  // a device are contiguous, because there are too many workers for that.
  const bool apart = rows > 1 && device() == nullptr;
  const std::int64_t stride_B = apart ? round_up(reach_B, kRowAlign_B) : row_B;
  a.row_stride = stride_B / size;
  const std::int64_t rows_B = checked_mul(stride_B, rows, what);
  const std::int64_t slot_B = apart ? rows_B : checked_add(rows_B, a.offset_B, what);
  Boundaries boundaries_B;
  for (const std::int64_t b : boundaries) boundaries_B.push_back(b * size + a.offset_B);
  if (!boundaries_B.empty()) {
    boundaries_B.front() = 0;
    boundaries_B.back() = slot_B;
  }
  a.slot = arena_.request(slot_B, rows, std::move(boundaries_B), pooled);
  return a;
}

void Problem::add_array(const std::string& name, DType type, std::int64_t columns, bool per_worker,
                        const Boundaries& boundaries) {
  declare(request(name, type, columns, per_worker ? workers() : 1, boundaries));
}

void Problem::add_array_in(DeviceMemory& memory, const std::string& name, DType type,
                           std::int64_t columns) {
  Array a;
  a.name = name;
  a.type = type;
  a.columns = columns;
  a.row_stride = columns;
  a.memory = &memory;
  const std::int64_t bytes = checked_mul(columns, dtype_size(type), "an array's size");
  elsewhere_.push_back(std::make_unique<Buffer>(bytes, Placement{{}, {}, 0, &memory, 1}));
  a.buffer = elsewhere_.back().get();
  a.data = a.buffer->data();
  declare(a);
}

void Problem::declare(Array a) {
  const auto found = std::find_if(declared_.begin(), declared_.end(),
                                  [&](const DeclaredArray& d) { return d.name == a.name; });
  if (found == declared_.end()) {
    throw InputError("the declaration of kernel '" + kernel_ + "' lacks its array '" + a.name +
                     "'");
  }
  a.written = found->role != 'r';
  a.salt = static_cast<std::uint32_t>(arrays_.size() + 1) * 0x9E3779B9U;
  arrays_.push_back(std::move(a));
}

void Problem::add_indices(const std::string& name, const IndexView& values, DType type,
                          std::int64_t low, std::int64_t bound, const Boundaries& boundaries,
                          std::int64_t tail, bool pooled) {
  if (type == DType::I32 && bound - 1 > INT32_MAX) {
    throw InputError(name + " reaches up to " + std::to_string(bound - 1) +
                     ", too far for int32 indices: use int64");
  }
  indices_.push_back({request(name, type, values.size, 1, boundaries, tail, pooled), values, low,
                      bound, boundaries, tail});
}

void Problem::add_data(const std::string& name, const DataView& values,
                       const Boundaries& boundaries, std::int64_t tail) {
  data_.push_back(
      {request(name, values.type, values.size, 1, boundaries, tail), values, boundaries, tail});
}

void Problem::commit() {
  for (const DeclaredArray& declared : declared_) array(declared.name);  // throws if there is none
  arena_.commit();
  const auto place = [&](Array& a) {
    a.buffer = &arena_[a.slot];
    a.data = a.buffer->data() + a.offset_B;
  };
  for (Array& a : arrays_) {
    if (a.buffer == nullptr) place(a);
  }
  for (Indices& i : indices_) {
    place(i.array);
    copy_indices(i);
  }
  for (Data& d : data_) {
    place(d.array);
    copy_data(d);
  }
}

void Problem::in_parts(const Boundaries& boundaries, std::int64_t size,
                       const std::function<void(Range)>& fn) const {
  if (boundaries.empty()) {
    parallel_parts(team_, 1, size, [&](Range part, int) { fn(part); });
  } else {
    parallel_parts(team_, boundaries, [&](Range part, int) { fn(part); });
  }
}

void Problem::put(const Array& a, std::byte* to, const void* from, std::int64_t bytes) {
  if (a.memory != nullptr) {
    a.memory->write(to, from, bytes);
  } else {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
}

void Problem::get(const Array& a, void* to, const std::byte* from, std::int64_t bytes) {
  if (a.memory != nullptr) {
    a.memory->read(to, from, bytes);
  } else {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
}

void Problem::put_zeros(const Array& a, std::byte* to, std::int64_t bytes) {
  if (bytes == 0) return;
  const std::vector<std::byte> zeros(static_cast<std::size_t>(bytes));
  put(a, to, zeros.data(), bytes);
}

void Problem::copy_data(const Data& data) {
  data.array.buffer->content.clear();
  const std::int64_t size = dtype_size(data.array.type);
  if (data.values.data != nullptr)
    in_parts(data.boundaries, data.values.size, [&](Range part) {
      put(data.array, data.array.data + part.begin * size,
          static_cast<const std::byte*>(data.values.data) + part.begin * size,
          (part.end - part.begin) * size);
    });
  put_zeros(data.array, data.array.data + data.values.size * size, data.tail * size);
}

void Problem::copy_indices(const Indices& indices) {
  indices.array.buffer->content.clear();
  const std::int64_t size = dtype_size(indices.array.type);
  std::atomic<std::int64_t> bad{indices.values.size};
  const auto copy = [&]<class I>(I* to, Range part) {
    for (std::int64_t i = part.begin; i < part.end; ++i) {
      const std::int64_t value = indices.values[i];
      if (value < indices.low || value >= indices.bound) {
        std::int64_t first = bad.load();
        while (i < first && !bad.compare_exchange_weak(first, i)) {
        }
        return;
      }
      to[i - part.begin] = static_cast<I>(value);
    }
  };
  const auto checked = [&](std::byte* to, Range part) {
    if (indices.array.type == DType::I32) {
      copy(reinterpret_cast<std::int32_t*>(to), part);
    } else {
      copy(reinterpret_cast<std::int64_t*>(to), part);
    }
  };
  if (indices.values.data != nullptr && device() == nullptr) {
    in_parts(indices.boundaries, indices.values.size,
             [&](Range part) { checked(indices.array.data + part.begin * size, part); });
  } else if (indices.values.data != nullptr) {
    // Indices for a device are checked and copied piece by piece.
    const std::int64_t most = std::min(kPiece, indices.values.size);
    std::vector<std::byte> piece(static_cast<std::size_t>(most * size));
    for (std::int64_t i = 0; i < indices.values.size; i += kPiece) {
      const Range part{i, std::min(i + kPiece, indices.values.size)};
      checked(piece.data(), part);
      put(indices.array, indices.array.data + i * size, piece.data(), (part.end - i) * size);
    }
  }
  const std::int64_t at = bad.load();
  if (at < indices.values.size) {
    throw InputError(indices.array.name + "[" + std::to_string(at) + "] is " +
                     std::to_string(indices.values[at]) + ", outside " +
                     std::to_string(indices.low) + " to " + std::to_string(indices.bound - 1));
  }
  put_zeros(indices.array, indices.array.data + indices.values.size * size, indices.tail * size);
}

const std::byte* Problem::in_host_memory(const Array& a, std::vector<std::byte>& copy) {
  if (a.memory == nullptr) return a.data;
  copy.resize(static_cast<std::size_t>(a.rows * a.row_stride * dtype_size(a.type)));
  get(a, copy.data(), a.data, std::ssize(copy));
  return copy.data();
}

void Problem::check_starts(const std::string& name, std::int64_t last) const {
  const Array& a = *find_array(indices_, name);
  std::vector<std::byte> copy;
  const std::byte* begin = in_host_memory(a, copy);
  const auto check = [&]<class I>(const I* at) {
    if (at[0] != 0 || at[a.columns - 1] != last) {
      throw InputError(name + " must go from 0 to " + std::to_string(last));
    }
    for (std::int64_t i = 1; i < a.columns; ++i) {
      if (at[i] < at[i - 1]) {
        throw InputError(name + "[" + std::to_string(i) + "] is smaller than the previous one");
      }
    }
  };
  if (a.type == DType::I32) {
    check(reinterpret_cast<const std::int32_t*>(begin));
  } else {
    check(reinterpret_cast<const std::int64_t*>(begin));
  }
}

std::byte* Problem::data(const std::string& name) const {
  if (const Array* found = find_array(data_, name)) return found->data;
  throw InputError("this kernel has no data '" + name + "'");
}

std::byte* Problem::indices(const std::string& name) const {
  if (const Array* found = find_array(indices_, name)) return found->data;
  throw InputError("this kernel has no index array '" + name + "'");
}

const void* Problem::own_indices(const std::string& name, const std::vector<std::int64_t>& values,
                                 DType type, std::int64_t bound) {
  std::vector<std::int32_t> narrow;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] < 0 || values[i] >= bound) {
      throw InputError(name + "[" + std::to_string(i) + "] is " + std::to_string(values[i]) +
                       ", outside 0 to " + std::to_string(bound - 1));
    }
    if (type != DType::I32) continue;
    if (values[i] > INT32_MAX) {
      throw InputError(name + "[" + std::to_string(i) + "] is " + std::to_string(values[i]) +
                       ", too large for int32 indices: use int64");
    }
    narrow.push_back(static_cast<std::int32_t>(values[i]));
  }
  if (type == DType::I32) return own(narrow);
  return own(values);
}

void* Problem::own_bytes(const void* from, std::int64_t bytes) {
  constexpr std::int64_t kAlign = 64;
  if (device() != nullptr) {
    on_device_.push_back(std::make_unique<Buffer>(bytes, Placement{{}, {}, 0, device(), 1}));
    device()->write(on_device_.back()->data(), from, bytes);
    return on_device_.back()->data();
  }
  owned_.push_back(std::make_unique<std::byte[]>(static_cast<std::size_t>(bytes + kAlign)));
  std::byte* to = owned_.back().get();
  to += round_up(reinterpret_cast<std::intptr_t>(to), kAlign) - reinterpret_cast<std::intptr_t>(to);
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
  return to;
}

void Problem::set_seed(std::int64_t seed) {
  const auto word = static_cast<std::uint64_t>(seed) * 0x9E3779B97F4A7C15U;
  for (Array& a : arrays_) a.salt ^= static_cast<std::uint32_t>(word >> 32);
}

void Problem::fill(bool outputs) {
  for (const Array& a : arrays_) {
    if (a.written && !outputs) continue;
    Buffer& buffer = *a.buffer;
    const std::int64_t row_B = a.row_stride * dtype_size(a.type);
    std::string content = std::string(dtype_name(a.type)) + "/" + std::to_string(a.salt) + "+" +
                          std::to_string(a.offset_B);
    if (a.rows > 1) content += "/" + std::to_string(a.rows) + "x" + std::to_string(a.row_stride);
    if (buffer.content == content && buffer.content_columns >= a.columns) continue;
    if (a.memory != nullptr) {
      a.memory->fill(dtype_name(a.type), a.data, a.rows, a.columns, a.salt);
    } else if (a.rows == 1) {
      parallel_parts(team_, 1, a.columns,
                     [&](Range part, int) { fill_part(a.type, a.data, part, a.salt); });
    } else {
      parallel_parts(team_, a.rows, a.rows, [&](Range, int row) {
        fill_part(a.type, a.data + row * row_B, {0, a.columns}, a.salt);
      });
    }
    buffer.content = content;
    buffer.content_columns = a.columns;
  }
}

void Problem::mark_written() {
  for (const Array& a : arrays_) {
    if (a.written || a.name == exchanged_ || may_write_inputs()) a.buffer->content.clear();
  }
}

void Problem::copy_in(const std::string& name, const void* source) {
  const Array& a = array(name);
  const auto [rows, row_B, stride_B] = shape_in_memory(a);
  for (std::int64_t row = 0; row < rows; ++row) {
    put(a, a.data + row * stride_B, static_cast<const std::byte*>(source) + row * row_B, row_B);
  }
  a.buffer->content.clear();
}

void Problem::copy_out(const Array& a, void* target) const {
  const auto [rows, row_B, stride_B] = shape_in_memory(a);
  for (std::int64_t row = 0; row < rows; ++row) {
    get(a, static_cast<std::byte*>(target) + row * row_B, a.data + row * stride_B, row_B);
  }
}

std::byte* Problem::element(const Array& a, std::int64_t position) const {
  if (position < 0 || position >= a.rows * a.columns) {
    throw InputError("position " + std::to_string(position) + " lies outside array '" + a.name +
                     "' of " + std::to_string(a.rows * a.columns) + " elements");
  }
  // Two divisions take longer than the access.
  const bool dense = a.rows == 1 || a.row_stride == a.columns;
  const std::int64_t at =
      dense ? position : position / a.columns * a.row_stride + position % a.columns;
  return a.data + at * dtype_size(a.type);
}

template <class Fn>
void Problem::in_spans(const Array& a, std::span<const std::int64_t> positions,
                       const Fn& fn) const {
  std::vector<Element> elements;
  elements.reserve(positions.size());
  for (const std::int64_t position : positions) {
    elements.push_back({element(a, position), elements.size()});
  }
  const auto before = [](const Element& x, const Element& y) {
    return x.at == y.at ? x.number < y.number : x.at < y.at;
  };
  if (!std::is_sorted(elements.begin(), elements.end(), before)) {
    std::sort(elements.begin(), elements.end(), before);
  }
  std::vector<std::byte> copy;
  for (std::size_t begin = 0, end = 0; begin < elements.size(); begin = end) {
    const std::byte* first = elements[begin].at;
    while (end < elements.size() && elements[end].at - first < kMaxSpan_B &&
           (end == begin || elements[end].at - elements[end - 1].at <= kMaxGap_B)) {
      ++end;
    }
    const std::int64_t bytes = elements[end - 1].at - first + dtype_size(a.type);
    copy.resize(static_cast<std::size_t>(bytes));
    get(a, copy.data(), first, bytes);
    fn(std::span<const Element>(elements).subspan(begin, end - begin), copy);
  }
}

double Problem::peek(const Array& a, std::int64_t position) const {
  return with_type(a.type, [&]<class T>(T value) {
    peek(a, {&position, 1}, &value);
    return static_cast<double>(value);
  });
}

void Problem::peek(const Array& a, std::span<const std::int64_t> positions, void* to) const {
  const auto size = static_cast<std::size_t>(dtype_size(a.type));
  auto* all = static_cast<std::byte*>(to);
  if (a.memory == nullptr) {
    for (const std::int64_t position : positions) {
      std::memcpy(all, element(a, position), size);
      all += size;
    }
    return;
  }
  in_spans(a, positions, [&](std::span<const Element> elements, const auto& copy) {
    for (const Element& e : elements) {
      std::memcpy(all + e.number * size, copy.data() + (e.at - elements.front().at), size);
    }
  });
}

void Problem::poke(const Array& a, std::int64_t position, double value) {
  poke(a, {&position, 1}, {&value, 1});
}

void Problem::poke(const Array& a, std::span<const std::int64_t> positions,
                   std::span<const double> values) {
  const auto set = [&](std::byte* to, double value) {
    with_type(a.type, [&]<class T>(T element_value) {
      element_value = static_cast<T>(value);
      std::memcpy(to, &element_value, sizeof element_value);
    });
  };
  for (const std::int64_t position : positions) element(a, position);
  if (a.memory == nullptr) {
    for (std::size_t i = 0; i < positions.size(); ++i) set(element(a, positions[i]), values[i]);
  } else {
    in_spans(a, positions, [&](std::span<const Element> elements, auto& copy) {
      for (const Element& e : elements) {
        set(copy.data() + (e.at - elements.front().at), values[e.number]);
      }
      put(a, elements.front().at, copy.data(), std::ssize(copy));
    });
  }
  a.buffer->content.clear();
}

std::pair<std::uint64_t, std::uint64_t> Problem::digest(const std::string& name) const {
  const Array& a = any_array(name);
  std::pair<std::uint64_t, std::uint64_t> all{0, 0};
  std::vector<std::byte> copy;
  const std::byte* begin = in_host_memory(a, copy);
  const auto add = [&]<class W>(W) {
    for (std::int64_t row = 0; row < a.rows; ++row) {
      const W* words = reinterpret_cast<const W*>(begin) + row * a.row_stride;
      for (std::int64_t i = 0; i < a.columns; ++i) {
        all.first += words[i];
        all.second ^= words[i];
      }
    }
  };
  if (dtype_size(a.type) == 4) {
    add(std::uint32_t{});
  } else {
    add(std::uint64_t{});
  }
  return all;
}

std::unique_ptr<Problem> make_problem(const std::string& kernel, const std::string& dtype,
                                      const std::string& index_dtype, const Inputs& inputs,
                                      const Team& team, const Placement& placement) {
  const Factory factory = find_family(kernel.substr(0, kernel.find('.')));
  for (const DeclaredInteger& declared : declaration_of(kernel).integers) inputs.check(declared);
  return factory(kernel, dtype, index_dtype, inputs, team, placement);
}

FamilyRegistrar::FamilyRegistrar(const char* family, Factory factory,
                                 std::span<const Declaration> declared) {
  families()[family] = factory;
  add_declarations(declared.data(), declared.size());
}

}  // namespace memkern
