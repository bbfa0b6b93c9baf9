//! Kafka Streams' orders and payments: an order and its payment within a minute, sent to the customer by mail.
//! Customers also receive a mail for each unpaid order.

use std::time::Duration;

use eos_core::state::JoinStore;
use eos_core::windows::Within;
use eos_core::{App, PlainTopic, Topic};

const MINUTE: Duration = Duration::from_secs(60);

/// The key is the order, the value is the customer.
fn orders() -> PlainTopic<String, String> {
    Topic::plain("orders")
}

/// The key is the order, the value is the amount.
fn payments() -> PlainTopic<String, u64> {
    Topic::plain("payments")
}

/// The key is the customer, the value is the address.
fn customers() -> PlainTopic<String, Option<String>> {
    Topic::plain("customers")
}

/// The key is the order.
fn mails() -> PlainTopic<String, String> {
    Topic::plain("mails")
}

fn app() -> App {
    let mut app = App::new("orders-and-payments-v1");
    let customers = app.global_table(&customers(), "customers");
    let payments = app.source(&payments());
    app.source(&orders())
        .left_join_within(
            payments,
            Within::of(MINUTE),
            &JoinStore::plain("orders-payments"),
            |customer, cents| (customer.clone(), cents.copied()),
        )
        .to_stream()
        .join_global(
            &customers,
            |_order, (customer, _)| customer.clone(),
            |(customer, cents), address| match cents {
                Some(cents) => format!("{address}: {customer} paid {cents}"),
                None => format!("{address}: {customer} has not paid yet"),
            },
        )
        .to(&mails());
    app
}

mod tests {
    use eos_core::Timestamp;
    use eos_testkit::{TestDriver, crash_everywhere};

    use super::*;

    fn scenario(driver: &mut TestDriver) {
        let begin = driver.now().0 - 3_600_000;
        let at = |seconds: i64| Timestamp(begin + seconds * 1_000);
        for customer in ["ada", "emmy"] {
            driver.pipe(&customers(), customer, format!("{customer}@eos"));
        }
        driver.pipe_at(&orders(), "o1", "ada", at(0));
        driver.pipe_at(&orders(), "o2", "emmy", at(10));
        // The payment may arrive first.
        driver.pipe_at(&payments(), "o3", 300_u64, at(20));
        driver.pipe_at(&orders(), "o3", "emmy", at(30));
        driver.pipe_at(&payments(), "o1", 100_u64, at(60));
        // A minute and a second after its order.
        driver.pipe_at(&payments(), "o2", 200_u64, at(71));
        // A customer without an address.
        driver.pipe_at(&orders(), "o4", "alan", at(500));
        driver.pipe_at(&payments(), "o4", 400_u64, at(500));
    }

    #[test]
    fn each_order_has_one_mail() {
        let mut driver = TestDriver::new(app());
        scenario(&mut driver);
        let expected = [
            ("o3", "emmy@eos: emmy paid 300"),
            ("o1", "ada@eos: ada paid 100"),
            ("o2", "emmy@eos: emmy has not paid yet"),
        ];
        let expected = expected.map(|(order, mail)| (order.to_owned(), mail.to_owned()));
        assert_eq!(driver.read_pairs(&mails()), expected);
    }

    #[test]
    fn a_crash_anywhere_changes_nothing() {
        let places = crash_everywhere(
            || TestDriver::new(app()),
            |driver| {
                scenario(driver);
                driver.committed()
            },
        );
        assert!(places > 30, "{places}");
    }
}
