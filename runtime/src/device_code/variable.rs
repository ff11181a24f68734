//! A global variable of device code.

/// The memory that a variable is in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// `__device__`: in the device's memory.
    Global,
    /// `__constant__`: in the device's memory, constant for kernels; the host writes it.
    Constant,
    /// `__managed__`: moves between host and device.
    Managed,
}

/// A variable at module scope.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Variable {
    /// As `cuModuleGetGlobal` wants it: mangled.
    pub name: String,
    /// The memory that it is in.
    pub kind: Kind,
    /// Its size, where the code says it.
    pub bytes: Option<u64>,
}
