/**
 * Some places a process comes to only when something happens to it: more work, another member of its group, or its own end.
 */
import { eventually } from '../../src/testing/eventually.ts'
import { leftOver, requests, type Scene } from './scene.ts'

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
      return 'joined'
    case 'leaving':
      await eventually(async () => (await leftOver(scene)) === 0)
      child.send('stop')
      return 'stopped'
    default:
      return undefined
  }
}
