//! How what a front has of the service is printed for debugging: briefly, and without a look into what others may have borrowed.

use super::{Account, LastAnswers, Prerequisites, Service, ServiceConfig, Session};
use std::fmt::{Debug, Formatter, Result};

impl Debug for Service {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.debug_struct("Service").finish_non_exhaustive()
    }
}

impl Debug for ServiceConfig {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        let ServiceConfig { pool, io_threads, reload: _, fixed, other_connections } = self;
        let mut config = formatter.debug_struct("ServiceConfig");
        config.field("pool", pool).field("io_threads", io_threads).field("fixed", fixed);
        config.field("other_connections", other_connections).finish_non_exhaustive()
    }
}

impl Debug for Prerequisites {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.debug_struct("Prerequisites").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Debug for Account {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        let mut account = formatter.debug_struct("Account");
        account.field("name", &self.name()).field("arriving", &self.arriving()).finish_non_exhaustive()
    }
}

impl Debug for Session {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.debug_struct("Session").field("account", self.account()).finish_non_exhaustive()
    }
}

impl Debug for LastAnswers {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.debug_struct("LastAnswers").finish_non_exhaustive()
    }
}
