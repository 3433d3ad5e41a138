# Topics, subscriptions and grants: what `waybill provision --terraform` prints is the module. It waits for the accounts, which the
# grants name without referring to them.

module "pubsub" {
  source     = "./pubsub"
  depends_on = [google_service_account.video_relay, google_service_account.catalog]
}
