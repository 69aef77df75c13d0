//! The methods that every source has, declared once.

/// Showing and recognising a source, closing it, its file descriptor, and whether it keeps the loop alive. What closing means,
/// and when there is no descriptor, differs between the sources, so that part of the documentation is handed in.
macro_rules! impl_common_methods {
    ($source:ident {
        $(#[$of_descriptor:meta])* descriptor,
        $(#[$of_close:meta])* close,
    }) => {
        impl std::fmt::Debug for $source {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut shown = formatter.debug_struct(stringify!($source));
                shown.field("handle_id", &self.handle_id()).field("is_closed", &self.is_closed());
                shown.finish_non_exhaustive()
            }
        }

        impl $source {
            /// Its name in the list of [`LoopHandle::handles`](crate::LoopHandle::handles), where all its clones are one
            /// handle. Once it is closed, the name means nothing.
            pub fn handle_id(&self) -> $crate::HandleId {
                self.inner.base.id()
            }

            $(#[$of_descriptor])*
            pub fn descriptor(&self) -> Result<$crate::Descriptor, $crate::SourceError> {
                self.inner.base.descriptor().map($crate::Descriptor::new)
            }

            /// Whether it was closed, by a handle or with its loop.
            pub fn is_closed(&self) -> bool {
                self.inner.base.is_closed()
            }

            $(#[$of_close])*
            ///
            /// # Errors
            /// [`SourceError::Closed`](crate::SourceError::Closed) if it was closed before; `on_closed` is dropped then.
            #[track_caller]
            pub fn close(
                &self,
                on_closed: impl FnOnce(&mut $crate::Context) + 'static,
            ) -> Result<(), $crate::SourceError> {
                $crate::sources::base::Source::close(&self.inner, std::panic::Location::caller(), on_closed)
            }

            /// Lets the loop end although somebody waits for what comes in here. What is under way, such as a write or a
            /// connect, still keeps it alive.
            pub fn unref(&self) {
                self.inner.base.unref();
            }

            #[doc = concat!("Undoes [`", stringify!($source), "::unref`].")]
            pub fn ref_(&self) {
                self.inner.base.ref_();
            }

            /// Whether it keeps the loop alive while it is active. False after `unref`, and once it is closed.
            pub fn is_referenced(&self) -> bool {
                self.inner.base.is_referenced()
            }

            /// Whether somebody waits for it, or something is under way. False once it is closed.
            pub fn is_active(&self) -> bool {
                self.inner.base.is_active()
            }
        }
    };
}

pub(super) use impl_common_methods;
