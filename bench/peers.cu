// Peers that the implementation is measured against, built with nvcc and called from Python by ctypes.
// Every function submits to the stream it is given and returns 0 or the CUDA error code.
#include <cuda.h>
#include <cuda_runtime.h>
#include <cstdint>
#include <vector>

// One copy call per page.
extern "C" int copy_per_page(const char* source, char* target, const int32_t* pairs, int pages, size_t page_bytes, cudaStream_t stream) {
    for (int i = 0; i < pages; ++i) {
        cudaError_t error = cudaMemcpyAsync(target + size_t(pairs[2 * i + 1]) * page_bytes, source + size_t(pairs[2 * i]) * page_bytes, page_bytes,
                                            cudaMemcpyDefault, stream);
        if (error != cudaSuccess) return int(error);
    }
    return 0;
}

// One batched call for all pages.
extern "C" int copy_batched(const char* source, char* target, const int32_t* pairs, int pages, size_t page_bytes, cudaStream_t stream) {
    std::vector<CUdeviceptr> from(pages), to(pages);
    std::vector<size_t> sizes(pages, page_bytes);
    for (int i = 0; i < pages; ++i) {
        from[i] = CUdeviceptr(source + size_t(pairs[2 * i]) * page_bytes);
        to[i] = CUdeviceptr(target + size_t(pairs[2 * i + 1]) * page_bytes);
    }
    CUmemcpyAttributes attributes = {};
    attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    size_t first = 0;
#if CUDA_VERSION >= 13000
    return int(cuMemcpyBatchAsync(to.data(), from.data(), sizes.data(), pages, &attributes, &first, 1, stream));
#else
    size_t failed = 0;
    return int(cuMemcpyBatchAsync(to.data(), from.data(), sizes.data(), pages, &attributes, &first, 1, &failed, stream));
#endif
}

// A warp moves 4 KiB at a time, all loads before the first store. Pages are multiples of 4 KiB.
__global__ void gather(const char* source, char* target, const int32_t* pairs, int pages, size_t page_bytes) {
    const int lane = threadIdx.x & 31;
    const size_t chunks = page_bytes >> 12;
    const size_t warps = size_t(gridDim.x) * blockDim.x >> 5;
    for (size_t chunk = (size_t(blockIdx.x) * blockDim.x + threadIdx.x) >> 5; chunk < pages * chunks; chunk += warps) {
        const size_t page = chunk / chunks, inside = (chunk - page * chunks) << 12;
        const uint4* from = reinterpret_cast<const uint4*>(source + size_t(pairs[2 * page]) * page_bytes + inside) + lane;
        uint4* to = reinterpret_cast<uint4*>(target + size_t(pairs[2 * page + 1]) * page_bytes + inside) + lane;
        uint4 words[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) words[i] = from[32 * i];
#pragma unroll
        for (int i = 0; i < 8; ++i) to[32 * i] = words[i];
    }
}

// A C++ kernel; `pairs` must be an address that the device can read.
extern "C" int copy_kernel(const char* source, char* target, const int32_t* pairs, int pages, size_t page_bytes, int blocks, cudaStream_t stream) {
    gather<<<blocks, 512, 0, stream>>>(source, target, pairs, pages, page_bytes);
    return int(cudaGetLastError());
}

// Publication by two copies per row and group: the row of the page table, and its count.
extern "C" int publish_per_row(const int32_t* host_table, const int32_t* host_counts, int32_t* const* tables, int32_t* const* counts, const int32_t* rows,
                               int dirty, int groups, int total_rows, int blocks, cudaStream_t stream) {
    for (int i = 0; i < dirty; ++i) {
        for (int g = 0; g < groups; ++g) {
            size_t row = size_t(rows[i]);
            cudaError_t error = cudaMemcpyAsync(tables[g] + row * blocks, host_table + (size_t(g) * total_rows + row) * blocks, size_t(blocks) * 4,
                                                cudaMemcpyHostToDevice, stream);
            if (error != cudaSuccess) return int(error);
            error = cudaMemcpyAsync(counts[g] + row, host_counts + size_t(g) * total_rows + row, 4, cudaMemcpyHostToDevice, stream);
            if (error != cudaSuccess) return int(error);
        }
    }
    return 0;
}

// Publication by copying every table whole, dirty or not.
extern "C" int publish_whole(const int32_t* host_table, const int32_t* host_counts, int32_t* const* tables, int32_t* const* counts, int groups, int total_rows,
                             int blocks, cudaStream_t stream) {
    for (int g = 0; g < groups; ++g) {
        cudaError_t error = cudaMemcpyAsync(tables[g], host_table + size_t(g) * total_rows * blocks, size_t(total_rows) * blocks * 4, cudaMemcpyHostToDevice, stream);
        if (error != cudaSuccess) return int(error);
        error = cudaMemcpyAsync(counts[g], host_counts + size_t(g) * total_rows, size_t(total_rows) * 4, cudaMemcpyHostToDevice, stream);
        if (error != cudaSuccess) return int(error);
    }
    return 0;
}

// A fetch that the host decides: the selection comes down, least recently used entries make room, one copy call for each miss, the entries go up.
// `where`: by row and block, the entry, -1 for none; `holds` and `used`: by row and entry, the block (-1) and when it was last selected.
extern "C" int fetch_by_host(const int32_t* selected, int32_t* asked, int32_t* where, int32_t* holds, int64_t* used, const int32_t* host_slots,
                             const int32_t* gpu_slots, int32_t* out, int32_t* result, const char* source, char* target, int rows, int selects, int entries,
                             int blocks, size_t page_bytes, int64_t now, cudaStream_t stream) {
    const size_t nbytes = size_t(rows) * selects * 4;
    cudaError_t error = cudaMemcpyAsync(asked, selected, nbytes, cudaMemcpyDeviceToHost, stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
    if (error != cudaSuccess) return int(error);
    for (int row = 0; row < rows; ++row) {
        int32_t* there = where + size_t(row) * blocks;
        int32_t* block = holds + size_t(row) * entries;
        int64_t* last = used + size_t(row) * entries;
        const int32_t* mine = asked + size_t(row) * selects;
        for (int i = 0; i < selects; ++i)
            if (there[mine[i]] >= 0) last[there[mine[i]]] = now;
        for (int i = 0; i < selects; ++i) {
            if (there[mine[i]] < 0) {
                int oldest = 0;
                for (int entry = 1; entry < entries; ++entry)
                    if (last[entry] < last[oldest]) oldest = entry;
                if (block[oldest] >= 0) there[block[oldest]] = -1;
                block[oldest] = mine[i];
                there[mine[i]] = oldest;
                last[oldest] = now;
                error = cudaMemcpyAsync(target + size_t(gpu_slots[size_t(row) * entries + oldest]) * page_bytes,
                                        source + size_t(host_slots[size_t(row) * blocks + mine[i]]) * page_bytes, page_bytes, cudaMemcpyHostToDevice, stream);
                if (error != cudaSuccess) return int(error);
            }
            out[size_t(row) * selects + i] = gpu_slots[size_t(row) * entries + there[mine[i]]];
        }
    }
    return int(cudaMemcpyAsync(result, out, nbytes, cudaMemcpyHostToDevice, stream));
}
