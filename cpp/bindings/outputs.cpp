#include "outputs.hpp"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <unordered_map>
#include <utility>

#include "errors.hpp"
#include "ringback/memory.hpp"

namespace py = pybind11;

namespace ringback::bindings {

namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kOwnBlock = std::size_t{1} << 18;  // arrays from this size on own their memory
constexpr std::size_t kPooled = std::size_t{64} << 20;
constexpr const char* kCapsule = "ringback.block";

std::size_t round_up(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Used with the interpreter's lock held only. It is never destroyed: arrays may outlive the module.
class Pool {
  public:
    static Pool& instance() {
        static Pool* const pool = new Pool;
        return *pool;
    }

    void* take(std::size_t bytes) {
        auto& blocks = free_[bytes];
        if (!blocks.empty()) {
            void* const block = blocks.back();
            blocks.pop_back();
            pooled_ -= bytes;
            return block;
        }
        void* block = bytes > memory_limit() ? nullptr : std::aligned_alloc(kAlignment, bytes);
        if (block == nullptr)
            throw OutOfMemory("the batch must fit in memory, got " + std::to_string(bytes) + " bytes");
        return block;
    }

    void give(void* block, std::size_t bytes) noexcept {
        if (pooled_ + bytes > kPooled) {
            std::free(block);
            return;
        }
        free_[bytes].push_back(block);
        pooled_ += bytes;
    }

  private:
    std::unordered_map<std::size_t, std::vector<void*>> free_;
    std::size_t pooled_ = 0;
};

// A capsule that gives the block back to the pool.
PyObject* take_block(std::size_t bytes, std::byte*& data) {
    void* const block = Pool::instance().take(bytes);
    PyObject* const capsule = PyCapsule_New(block, kCapsule, [](PyObject* self) {
        Pool::instance().give(PyCapsule_GetPointer(self, kCapsule),
                              reinterpret_cast<std::size_t>(PyCapsule_GetContext(self)));
    });
    if (capsule == nullptr) {
        std::free(block);
        throw py::error_already_set();
    }
    PyCapsule_SetContext(capsule, reinterpret_cast<void*>(bytes));
    data = static_cast<std::byte*>(block);
    return capsule;
}

}  // namespace

std::vector<Outputs::Slot>& Outputs::spare_slots() noexcept {
    thread_local std::vector<Slot> slots;
    return slots;
}

Outputs::Outputs() : slots_(std::exchange(spare_slots(), {})) {}

Outputs::~Outputs() {
    for (const Slot& slot : slots_) Py_XDECREF(slot.object);
    for (PyObject* object : kept_) Py_DECREF(object);
    slots_.clear();
    spare_slots() = std::move(slots_);
}

std::size_t Outputs::add(const ArrayType& type, std::span<const std::int64_t> leading,
                         std::span<const std::int64_t> row) {
    Slot& slot = slots_.emplace_back();
    slot.type = type;
    slot.bytes = type.bytes;
    for (const std::int64_t n : leading) slot.shape[slot.axes++] = static_cast<npy_intp>(n);
    for (const std::int64_t n : row) slot.shape[slot.axes++] = static_cast<npy_intp>(n);
    if (row.empty()) slot.shape[slot.axes++] = 1;
    for (int axis = 0; axis < slot.axes; ++axis)
        if (__builtin_mul_overflow(slot.bytes, static_cast<std::size_t>(slot.shape[axis]), &slot.bytes))
            throw OutOfMemory("the batch must fit in memory, got more than 2**64 bytes");
    bytes_ += slot.bytes;
    return slots_.size() - 1;
}

std::size_t Outputs::add_exact(const ArrayType& type, std::span<const std::int64_t> shape) {
    return add(type, shape.first(shape.size() - 1), shape.last(1));
}

void Outputs::use(std::size_t output, PyObject* given, const std::string& name) {
    Slot& slot = slots_[output];
    py::object array = py::reinterpret_borrow<py::object>(given);
    if (!PyArray_Check(given)) {
        if (!py::hasattr(given, "numpy"))
            throw TypeMistake("out: " + name + " must be an array or a CPU tensor, got " + shown(given));
        array = array.attr("numpy")();
        if (!PyArray_Check(array.ptr()))
            throw TypeMistake("out: " + name + " must be an array or a CPU tensor, got " + shown(given));
    }
    auto* const a = reinterpret_cast<PyArrayObject*>(array.ptr());
    const PyArray_Descr* descr = PyArray_DESCR(a);
    bool fits = PyArray_NDIM(a) == slot.axes && descr->kind == slot.type.kind &&
                static_cast<std::size_t>(PyArray_ITEMSIZE(a)) == slot.type.bytes && PyArray_ISNOTSWAPPED(a);
    for (int axis = 0; fits && axis < slot.axes; ++axis) fits = PyArray_DIM(a, axis) == slot.shape[axis];
    if (!fits) {
        py::tuple shape(static_cast<std::size_t>(slot.axes));
        for (int axis = 0; axis < slot.axes; ++axis) shape[static_cast<std::size_t>(axis)] = slot.shape[axis];
        const auto dtype =
            py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyArray_DescrFromType(slot.type.number)));
        throw std::invalid_argument("out: " + name + " must have shape " + py::repr(shape).cast<std::string>() +
                                    " and dtype " + py::str(dtype).cast<std::string>() + ", got " +
                                    py::repr(array.attr("shape")).cast<std::string>() + " and " +
                                    py::str(array.attr("dtype")).cast<std::string>());
    }
    if (!PyArray_IS_C_CONTIGUOUS(a) || !PyArray_ISWRITEABLE(a))
        throw std::invalid_argument("out: " + name + " must be C-contiguous and writable, got one that is not");
    slot.data = static_cast<std::byte*>(PyArray_DATA(a));
    slot.object = Py_NewRef(given);
    kept_.push_back(array.release().ptr());
}

void Outputs::allocate() {
    std::size_t shared = 0;
    bool any_shared = false;
    for (const Slot& slot : slots_)
        if (slot.object == nullptr && slot.bytes < kOwnBlock) {
            shared += round_up(slot.bytes);
            any_shared = true;
        }
    std::byte* block = nullptr;
    PyObject* owner = nullptr;
    if (any_shared) kept_.push_back(owner = take_block(std::max(shared, kAlignment), block));
    for (Slot& slot : slots_) {
        if (slot.object != nullptr) continue;
        PyObject* base = owner;
        if (slot.bytes < kOwnBlock) {
            slot.data = block;
            block += round_up(slot.bytes);
            Py_INCREF(base);
        } else {
            base = take_block(round_up(slot.bytes), slot.data);
        }
        slot.object = PyArray_NewFromDescr(&PyArray_Type, PyArray_DescrFromType(slot.type.number), slot.axes,
                                           slot.shape, nullptr, slot.data, NPY_ARRAY_CARRAY, nullptr);
        if (slot.object == nullptr || PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(slot.object), base) < 0) {
            if (slot.object == nullptr) Py_DECREF(base);
            throw py::error_already_set();
        }
    }
}

PyObject* Outputs::take(std::size_t output, const Wrapping& wrapping) const {
    PyObject* const object = slots_[output].object;
    if (wrapping.function == nullptr || (wrapping.arrays_only && !PyArray_Check(object))) return Py_NewRef(object);
    PyObject* const wrapped = PyObject_CallOneArg(wrapping.function, object);
    if (wrapped == nullptr) throw py::error_already_set();
    return wrapped;
}

}  // namespace ringback::bindings
