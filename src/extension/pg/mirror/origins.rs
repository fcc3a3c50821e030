//! Nodes that live as long as a planning. Nodes that PostgreSQL evaluates when the query starts
//! have numbers. Aggregates are mirrored once, because each stage above the joins looks for them.
//!
//! Invariant: the nodes are copies in a memory context of their own. The current context may end
//! before the planning: the genetic join search frees the nodes of one join order before it tries
//! the next.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use pgrx::{IntoDatum, pg_sys};
use pystachio_lower::{AggregateSource, Origin, RuntimeValue};
use pystachio_plan::Value;

use super::server::reserved_words;
use crate::pg::{
    nodes::list_of,
    tree::{Memory, Node},
};

/// Nodes by their numbers.
pub struct Origins {
    /// NULL until there is a node.
    memory: Cell<pg_sys::MemoryContext>,
    nodes: RefCell<Vec<*mut pg_sys::Node>>,
    aggregates: RefCell<Vec<KnownAggregate>>,
}

struct KnownAggregate {
    node: *mut pg_sys::Node,
    source: Rc<AggregateSource>,
    has_given: bool,
}

impl Default for Origins {
    fn default() -> Self {
        Self {
            memory: Cell::new(std::ptr::null_mut()),
            nodes: RefCell::default(),
            aggregates: RefCell::default(),
        }
    }
}

impl Drop for Origins {
    fn drop(&mut self) {
        // SAFETY: no one else has anything in this context. At the end of the process PostgreSQL drops it itself.
        unsafe {
            if !self.memory.get().is_null() && !pg_sys::proc_exit_inprogress {
                pg_sys::MemoryContextDelete(self.memory.get());
            }
        }
    }
}

impl Origins {
    /// The number of a node: that of an equal one, if there is one.
    ///
    /// # Safety
    ///
    /// The node is valid.
    pub unsafe fn number(&self, node: *mut pg_sys::Node) -> Origin {
        let mut nodes = self.nodes.borrow_mut();
        // SAFETY: the caller says that the node is valid, and those that are kept are.
        let known = nodes.iter().position(|known| unsafe { pg_sys::equal((*known).cast(), node.cast()) });
        let place = known.unwrap_or_else(|| {
            // SAFETY: as the caller says.
            nodes.push(unsafe { self.kept(node) });
            nodes.len() - 1
        });
        Origin(place as u32)
    }

    /// The mirror of an equal aggregate, and whether a parameter of the statement is in it.
    ///
    /// # Safety
    ///
    /// The node is valid.
    pub unsafe fn aggregate(&self, node: *mut pg_sys::Node) -> Option<(Rc<AggregateSource>, bool)> {
        let aggregates = self.aggregates.borrow();
        // SAFETY: the caller says that the node is valid, and those that are kept are.
        let is_equal = |known: &&KnownAggregate| unsafe { pg_sys::equal(known.node.cast(), node.cast()) };
        let known = aggregates.iter().find(is_equal)?;
        Some((known.source.clone(), known.has_given))
    }

    /// Keeps the mirror of an aggregate.
    ///
    /// # Safety
    ///
    /// The node is valid.
    pub unsafe fn keep_aggregate(
        &self,
        node: *mut pg_sys::Node,
        source: Rc<AggregateSource>,
        has_given: bool,
    ) {
        // SAFETY: as the caller says.
        let node = unsafe { self.kept(node) };
        self.aggregates.borrow_mut().push(KnownAggregate { node, source, has_given });
    }

    /// A copy of a node that lives as long as this.
    ///
    /// # Safety
    ///
    /// The node is valid.
    unsafe fn kept(&self, node: *mut pg_sys::Node) -> *mut pg_sys::Node {
        // SAFETY: the memory context lives as long as this; the current one is restored.
        unsafe {
            let former = pg_sys::MemoryContextSwitchTo(self.memory());
            let copy = pg_sys::copyObjectImpl(node.cast()).cast();
            pg_sys::MemoryContextSwitchTo(former);
            copy
        }
    }

    fn memory(&self) -> pg_sys::MemoryContext {
        if self.memory.get().is_null() {
            // SAFETY: a new context, which `drop` deletes; its name lives as long as the process.
            self.memory.set(unsafe {
                pg_sys::AllocSetContextCreateExtended(
                    pg_sys::TopMemoryContext,
                    c"pystachio planning".as_ptr(),
                    pg_sys::ALLOCSET_SMALL_MINSIZE as usize,
                    pg_sys::ALLOCSET_SMALL_INITSIZE as usize,
                    pg_sys::ALLOCSET_SMALL_MAXSIZE as usize,
                )
            });
        }
        self.memory.get()
    }

    /// A copy of the node whose value a parameter has.
    pub fn node_of<'p>(&self, value: &RuntimeValue, _memory: Memory<'p>) -> Option<Node<'p>> {
        let node = match value {
            // SAFETY: those that are kept are valid; the copy is in the current memory context.
            RuntimeValue::Origin(Origin(place)) => unsafe {
                let kept = *self.nodes.borrow().get(*place as usize)?;
                pg_sys::copyObjectImpl(kept.cast()).cast()
            },
            RuntimeValue::SessionZone => session_zone(),
            RuntimeValue::DateStyle => setting("DateStyle"),
            RuntimeValue::ReservedWords => text_constant(reserved_words()),
            RuntimeValue::QuotesIdentifiers => setting("quote_all_identifiers"),
            RuntimeValue::FloatDigits => setting("extra_float_digits"),
            RuntimeValue::Zone(zone) => zone_constant(zone)?,
        };
        // SAFETY: just made.
        Some(unsafe { Node::known(node) })
    }
}

/// A setting of the session, as it is shown.
fn setting(name: &str) -> *mut pg_sys::Node {
    call(pg_sys::F_CURRENT_SETTING_TEXT, pg_sys::TEXTOID, text_constant(name))
}

fn call(function_oid: u32, type_oid: pg_sys::Oid, argument: *mut pg_sys::Node) -> *mut pg_sys::Node {
    // SAFETY: makes a node of a function of one argument.
    unsafe {
        pg_sys::makeFuncExpr(
            pg_sys::Oid::from(function_oid),
            type_oid,
            list_of([argument]),
            pg_sys::DEFAULT_COLLATION_OID,
            pg_sys::DEFAULT_COLLATION_OID,
            pg_sys::CoercionForm::COERCE_EXPLICIT_CALL,
        )
        .cast()
    }
}

/// The session's time zone. It is of type `name`, which no argument of a function of zones is.
fn session_zone() -> *mut pg_sys::Node {
    call(pg_sys::F_NAME_TEXT, pg_sys::NAMEOID, setting("TimeZone"))
}

fn zone_constant(zone: &Value) -> Option<*mut pg_sys::Node> {
    match zone {
        Value::Text(name) => Some(text_constant(name)),
        Value::Interval(interval) => {
            // SAFETY: makes a node of a new value, which has the type's length.
            unsafe {
                let value = pg_sys::palloc(size_of::<pg_sys::Interval>()).cast::<pg_sys::Interval>();
                value.write(pg_sys::Interval {
                    time: interval.microseconds,
                    day: interval.days,
                    month: interval.months,
                });
                let (length, datum) = (size_of::<pg_sys::Interval>() as i32, pg_sys::Datum::from(value));
                let none = pg_sys::InvalidOid;
                Some(pg_sys::makeConst(pg_sys::INTERVALOID, -1, none, length, datum, false, false).cast())
            }
        }
        _ => None,
    }
}

fn text_constant(text: &str) -> *mut pg_sys::Node {
    let datum = text.into_datum().unwrap_or(pg_sys::Datum::from(0));
    let collation = pg_sys::DEFAULT_COLLATION_OID;
    // SAFETY: makes a node of a value of the type.
    unsafe { pg_sys::makeConst(pg_sys::TEXTOID, -1, collation, -1, datum, false, false).cast() }
}
