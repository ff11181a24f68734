//! Memory that graphs allocate when they run: its address is settled when the node is made.

use core::ffi::{c_int, c_void};

use ckpt_wire::allocations::{CUDA_GRAPH, CudaAllocation};

use super::driver::{Handle, SUCCESS, driver_hooks};
use super::records;

/// `CUDA_MEM_ALLOC_NODE_PARAMS`.
#[repr(C)]
pub struct AllocationNode {
    allocation_kind: c_int,
    handle_kinds: c_int,
    location_kind: c_int,
    location: c_int,
    other_properties: [u64; 9],
    access: *const c_void,
    access_count: usize,
    bytes: usize,
    address: u64,
}

/// `CUgraphNodeParams`: the kind of node, and what that kind needs.
#[repr(C)]
pub struct Node {
    kind: c_int,
    reserved: [c_int; 3],
    allocation: AllocationNode,
}

/// `CU_GRAPH_NODE_TYPE_MEM_ALLOC`.
const ALLOCATION_NODE: c_int = 10;
/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const ON_DEVICE: c_int = 1;

const _: () = {
    assert!(core::mem::offset_of!(AllocationNode, address) == 112);
    assert!(core::mem::offset_of!(Node, allocation) == 16);
};

fn add(graph: Handle, node: &AllocationNode) {
    // The driver does not say where memory is that no graph has yet.
    let device = if node.location_kind == ON_DEVICE { node.location } else { -1 };
    let owner = graph as u64;
    records::add(CudaAllocation { owner, device, ..CudaAllocation::new(CUDA_GRAPH, node.address, node.bytes as u64) });
}

/// # Safety
/// The driver has just accepted the node.
unsafe fn add_if_allocation(graph: Handle, node: *const Node) {
    // SAFETY: the caller's word; what the union holds, its kind says.
    unsafe {
        if (*node).kind == ALLOCATION_NODE {
            add(graph, &(*node).allocation);
        }
    }
}

driver_hooks! {
    "cuGraphAddMemAllocNode" 11040 =>
    cuGraphAddMemAllocNode(
        node: *mut Handle, graph: Handle, before: *const Handle, count: usize, parameters: *mut AllocationNode
    ) |real| {
        let result = real(node, graph, before, count, parameters);
        if result == SUCCESS {
            add(graph, &*parameters);
        }
        result
    }

    "cuGraphAddNode" 12020 =>
    cuGraphAddNode(
        node: *mut Handle, graph: Handle, before: *const Handle, count: usize, parameters: *mut Node
    ) |real| {
        let result = real(node, graph, before, count, parameters);
        if result == SUCCESS {
            add_if_allocation(graph, parameters);
        }
        result
    }

    "cuGraphAddNode" 12030 =>
    cuGraphAddNode_v2(
        node: *mut Handle, graph: Handle, before: *const Handle, edges: *const c_void, count: usize,
        parameters: *mut Node
    ) |real| {
        let result = real(node, graph, before, edges, count, parameters);
        if result == SUCCESS {
            add_if_allocation(graph, parameters);
        }
        result
    }

    "cuGraphDestroy" 10000 =>
    cuGraphDestroy(graph: Handle) |real| {
        let result = real(graph);
        if result == SUCCESS {
            records::remove_where(|allocation: &CudaAllocation| {
                allocation.kind == CUDA_GRAPH && allocation.owner == graph as u64
            });
        }
        result
    }
}
