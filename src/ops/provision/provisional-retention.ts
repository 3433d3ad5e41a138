/**
 * How nothing is lost while a topic is made beside relays that wait for it.
 *
 * A subscription gets what is published after it was made. So a topic that is to have subscriptions keeps everything until it has
 * them, and each of them is sought to the beginning. What a seek has made due is delivered, whatever the topic keeps later.
 *
 *   topic         missing ──create──▶ provisional ──its subscriptions are there──▶ wanted
 *   subscription  missing ──create──▶ provisional ──seek─────────────────────────▶ wanted
 *
 * Nobody asks for the provisional retention. What has it was left by a run that was broken off, and the next one goes on there;
 * what has another is in service and is never sought.
 */

/** A second less than Pub/Sub keeps anything: it tells what is not finished from what others have set, and lasts until somebody looks. */
const provisionalSeconds = 31 * 86_400 - 1

interface Retaining {
  readonly retentionSeconds: number
}

export function provisional<Settings extends Retaining>(settings: Settings): Settings {
  return { ...settings, retentionSeconds: provisionalSeconds }
}

export function isProvisional({ retentionSeconds }: Retaining): boolean {
  return retentionSeconds === provisionalSeconds
}
