//! The public API of the pool: start, dispatch, status, drain.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;

use crate::backend::{self, Backend};
use crate::context::RequestContext;
use crate::exchange::{BoxBody, BoxError};
use crate::foreign::Foreign;
use crate::frames::Sharing;
use crate::groups::{Groups, status_of};
use crate::seats::Seats;
use crate::shared::Owner;
use crate::status::GroupState;
use crate::{DispatchError, Options, PoolStatus, ResponseBody, StartError, frames};

/// A running pool. Cheap to clone: all clones are the same pool. When the last one is dropped, its processes end soon
/// after, and what still runs is killed: [`Pool::drain`] waits for it.
#[derive(Clone, Debug)]
pub struct Pool {
    kind: Kind,
    /// All scripts but the one that has waited for its requests already.
    groups: Option<Arc<Groups>>,
}

/// The implementation that runs PHP.
#[derive(Clone, Debug)]
enum Kind {
    /// Hearth's own workers, which use frames.
    Frames(Arc<Owner>),
    /// PHP's own programs.
    Foreign(Arc<Foreign>),
}

impl Kind {
    fn backend(&self) -> &dyn Backend {
        match self {
            Self::Frames(owner) => &*owner.shared,
            Self::Foreign(foreign) => &**foreign,
        }
    }
}

/// The reason phrase of a response, if PHP set a non-standard one. It is in the response's extensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason(pub Bytes);

impl Pool {
    /// Starts PHP and returns when the first worker is ready; the others follow.
    ///
    /// # Cancel safety
    /// A pool whose start is dropped ends all that it has started, soon after: the front controller's workers, and
    /// those of groups that are ready or boot.
    pub async fn start(mut options: Options) -> Result<Self, StartError> {
        if options.model.is_foreign() {
            let foreign = Foreign::start(options).await?;
            return Ok(Self { kind: Kind::Foreign(Arc::new(foreign)), groups: None });
        }
        let others = options.entry.as_mut().and_then(|entry| entry.others.take());
        let Some(others) = others else {
            let kind = Kind::Frames(frames::start(options, None).await?);
            return Ok(Self { kind, groups: None });
        };
        let entry_script = options.worker_script.clone().unwrap_or_default();
        let most = options.scaling.map_or(options.workers, |scaling| scaling.most);
        let seats = Seats::new(most.max(options.workers).get());
        let sharing = Sharing { seats: Arc::clone(&seats), scaling: None };
        let boot_files = options.boot_files.clone();
        let front = frames::start(options, Some(sharing)).await?;
        let mut pool = Self { kind: Kind::Frames(front), groups: None };
        match Groups::start(entry_script.into(), others, &seats, boot_files).await {
            Ok(groups) => pool.groups = Some(groups),
            Err(error) => {
                pool.drain(Duration::ZERO).await;
                return Err(error);
            }
        }
        if let Some(groups) = &pool.groups {
            groups.boot_known().await;
        }
        Ok(pool)
    }

    /// Returns this pool and those of its groups.
    fn parts(&self) -> Vec<Kind> {
        let groups = self.groups.iter().flat_map(|groups| groups.pools());
        let groups = groups.map(|(_, owner)| Kind::Frames(owner));
        std::iter::once(self.kind.clone()).chain(groups).collect()
    }

    /// Returns the scripts beside the front controller that wait for their requests.
    pub fn entry_scripts(&self) -> Vec<PathBuf> {
        let groups = self.groups.iter().flat_map(|groups| groups.scripts());
        groups.map(|script| script.to_path_buf()).collect()
    }

    fn backend(&self) -> &dyn Backend {
        self.kind.backend()
    }

    /// Sends one request to an idle worker and returns its response as soon as the head is available. `request`
    /// carries a [`RequestContext`] in its extensions. Dropping the future, or later the body, tells the worker that
    /// the client is gone.
    ///
    /// The request is retried with another worker only if no worker can have read it and at most 64 KiB of its body
    /// were consumed. Retries end when the backlog time-out is over, because possibly no worker can accept it.
    ///
    /// # Panics
    /// The request has no context.
    pub fn dispatch<B>(
        &self,
        request: Request<B>,
    ) -> impl Future<Output = Result<Response<ResponseBody>, DispatchError>> + Send
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (mut parts, body) = request.into_parts();
        let context = parts
            .extensions
            .remove::<RequestContext>()
            .expect("fronts put a RequestContext into every request they dispatch");
        let length = if body.is_end_stream() {
            None
        } else {
            Some(body.size_hint().exact().unwrap_or(wire::NO_LENGTH))
        };
        let body = length.map(|_| Box::pin(Erased { body }) as BoxBody);
        let script = &context.script.filename;
        let group = self.groups.as_ref().and_then(|groups| groups.runner(script));
        // A block keeps each of these once, an `async fn` its parameters beside them.
        async move {
            let shared = match (&group, &self.kind) {
                (Some(shared), _) => shared,
                (None, Kind::Frames(owner)) => &owner.shared,
                (None, Kind::Foreign(foreign)) => {
                    let length = length.filter(|length| *length != wire::NO_LENGTH);
                    return Box::pin(foreign.dispatch(parts, context, body, length)).await;
                }
            };
            frames::dispatch(shared, &parts, &context, body, length).await
        }
    }

    /// Returns whether both are handles of one pool.
    pub fn is(&self, other: &Self) -> bool {
        match (&self.kind, &other.kind) {
            (Kind::Frames(one), Kind::Frames(other)) => Arc::ptr_eq(one, other),
            (Kind::Foreign(one), Kind::Foreign(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// Returns the state of the pool.
    pub fn status(&self) -> PoolStatus {
        let mut status = self.backend().status();
        if let (Some(groups), Kind::Frames(front)) = (&self.groups, &self.kind) {
            let (least, most) = (status.least, status.most);
            status.groups.push(status_of(groups.entry_script(), GroupState::Waits, &front.shared));
            for (script, owner) in groups.pools() {
                let state = if script.is_some() { GroupState::Waits } else { GroupState::Rest };
                let script = script.as_deref().unwrap_or_else(|| Path::new("other scripts"));
                status.groups.push(status_of(script, state, &owner.shared));
                status.add(owner.shared.status());
            }
            status.groups.extend(groups.not_running());
            // They share one number.
            (status.least, status.most) = (least, most);
        }
        status
    }

    /// Reads the memory of the pool's processes now; [`Pool::status`] has the figures then.
    pub async fn read_memory(&self) {
        let pool = self.clone();
        let read = tokio::task::spawn_blocking(move || {
            pool.parts().iter().for_each(|part| part.backend().read_memory());
        });
        if let Err(error) = read.await {
            tracing::debug!(%error, "memory was not read");
        }
    }

    /// Returns the processor time that the zygote and all workers have used since the start, ended workers included.
    /// `None` if /proc does not show it, or PHP runs in its own programs.
    pub fn processor_time(&self) -> Option<Duration> {
        let of = |part: &Kind| match part {
            Kind::Frames(owner) => frames::processor_time(&owner.shared),
            Kind::Foreign(_) => None,
        };
        self.parts().iter().map(of).sum()
    }

    /// Waits until the wanted number of workers are idle or busy. Cancel safe.
    pub async fn filled(&self) {
        const LOOK: Duration = Duration::from_millis(5);
        // The wanted number may fall in the meantime.
        for part in self.parts() {
            while part.backend().core().ready_workers() < part.backend().wanted() {
                tokio::time::sleep(LOOK).await;
            }
        }
    }

    /// Waits until no request runs or waits, and no worker does anything after its response. Cancel safe.
    pub async fn quiet(&self) {
        for part in self.parts() {
            part.backend().is_quiet().await;
        }
    }

    /// Waits until workers that were lost, or have left, have booted successors. Returns at once in models with a
    /// process for each request, where successors are always being started. Cancel safe.
    pub async fn restored(&self) {
        let model = self.backend().core().options.model;
        // PHP's own programs are quiet only when they are ready again.
        if !model.is_one_shot() && !model.is_foreign() {
            self.filled().await;
        }
    }

    /// Replaces every worker by a new process, and returns when the last old one has ended. New workers are forked from
    /// the booted zygote, in models that have one; in other models they boot. Returns `false` if PHP runs in its own
    /// programs: start another pool there.
    ///
    /// # Errors
    /// A new worker did not boot, and an old one still runs.
    pub async fn renew(&self) -> Result<bool, StartError> {
        for part in self.parts() {
            match &part {
                Kind::Frames(owner) => frames::renew(&owner.shared).await?,
                Kind::Foreign(_) => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Rejects new requests, answers the accepted ones (backlog included), and ends the workers. After `patience`
    /// what still runs is killed. Returns when no PHP process is left.
    pub async fn drain(&self, patience: Duration) {
        let groups = async {
            if let Some(groups) = &self.groups {
                groups.drain(patience).await;
            }
        };
        tokio::join!(backend::drain(self.backend(), patience), groups);
    }
}

pin_project_lite::pin_project! {
    /// A body whose error is boxed.
    struct Erased<B> {
        #[pin]
        body: B,
    }
}

impl<B> Body for Erased<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, BoxError>>> {
        self.project().body.poll_frame(cx).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}
