import { expect, test } from 'vitest'
import { desiredResources } from './desired.ts'

const videos = { topic: 'video.events', ordering: 'aggregate' } as const

test.each([false, true])('dead letters come over the same transport, so with exactlyOnce %s as the events', (exactlyOnce) => {
  const { subscriptions } = desiredResources({ consumers: [{ name: 'catalog', streams: [videos], exactlyOnce }] })
  expect(subscriptions.map(({ name, isExactlyOnce }) => ({ name, isExactlyOnce }))).toEqual([
    { name: 'video.events.catalog', isExactlyOnce: exactlyOnce },
    { name: 'video.events.catalog.dead.catalog', isExactlyOnce: exactlyOnce },
  ])
})
