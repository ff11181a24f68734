// The driver's entry points for streams and events.
#include "streams.h"

#include "results.h"

using namespace on_cpu;

extern "C" {

int cuStreamCreate(Stream **stream, unsigned) { return *stream = new Stream, SUCCESS; }
int cuStreamDestroy_v2(Stream *stream) { return delete stream, SUCCESS; }
int cuStreamSynchronize(Stream *stream) { return stream->wait(), SUCCESS; }
int cuStreamWaitEvent(Stream *stream, Event *event, unsigned) { return stream->push(event->awaited()), SUCCESS; }

int cuEventCreate(Event **event, unsigned) { return *event = new Event, SUCCESS; }
int cuEventElapsedTime(float *milliseconds, Event *from, Event *to) {
    return *milliseconds = to->milliseconds_since(*from), SUCCESS;
}
int cuEventDestroy_v2(Event *event) { return delete event, SUCCESS; }
int cuEventRecord(Event *event, Stream *stream) { return stream->push(event->record()), SUCCESS; }
int cuEventSynchronize(Event *event) { return event->wait(), SUCCESS; }
}
