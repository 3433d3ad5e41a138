/**
 * Some places a process comes to only when something happens to it: more work, another member of its group, or its own end.
 */
import { eventually } from '../../src/testing/kit/eventually.ts'
import { leftOver, requests, type Scene } from './scene.ts'

const mostOthers = 5

/** Whether it comes to its place, in a time in which sessions end and groups rebalance. */
async function comes(isThere: () => boolean): Promise<boolean> {
  return await eventually(isThere, { timeoutMs: 15_000 }).catch(() => false)
}

/** Makes it happen where it must. `joined`: another relay and consumer run from now on; `stopped`: the process was told to end. */
export async function stir(scene: Scene, isThere: () => boolean): Promise<'joined' | 'stopped' | undefined> {
  const { cell, crew, child, db } = scene
  const isPublished = async (): Promise<boolean> => (await db.query('select from waybill.outbox_dispatch')).rows.length === 0
  const more = async (): Promise<void> => {
    for (const deposit of requests('more', scene)) await crew.insist(deposit)
  }
  switch (cell.place.name) {
    case 'produce sent':
      await eventually(async () => isThere() || (await isPublished()))
      await more()
      return undefined
    case 'rebalance heard':
    case 'joining again':
      // On a starved machine a session can end while there is work left: then it joins again by itself.
      await eventually(async () => isThere() || (await leftOver(scene)) === 0)
      crew.start({ relay: true, consumer: true })
      await more()
      // One that was silent for longer than its session is told that it is out, not that the group rebalances: others join again.
      for (let others = 1; others < mostOthers && !(await comes(isThere)); others += 1)
        crew.start({ relay: false, consumer: true })
      return 'joined'
    case 'leaving':
      await eventually(async () => (await leftOver(scene)) === 0)
      child.send('stop')
      return 'stopped'
    default:
      return undefined
  }
}
