/* Prints the ten best keypoints of a picture:  keypoints model.safetensors photo.jpg
 *
 *     cc keypoints.c $(pkg-config --cflags --libs tapetum) -o keypoints */
#include <stdio.h>
#include <tapetum.h>

int main(int argc, char **argv)
{
    tap_engine *engine = NULL;
    tap_model *model = NULL;
    tap_session *session = NULL;
    tap_keypoints *points = NULL;
    tap_superpoint_options options;
    tap_keypoints_view view = {.size = sizeof view};
    tap_error err = {.message = "usage: keypoints WEIGHTS PICTURE"};
    int status = 1;

    tap_superpoint_options_init(&options);
    options.max_keypoints = 10;
    if (argc != 3 || tap_engine_open(&engine, NULL, &err) ||
        tap_model_load(&model, engine, argv[1], NULL, &err) ||
        tap_session_create(&session, model, &err) || tap_keypoints_create(&points, &err) ||
        tap_superpoint_file(session, argv[2], &options, points, &err)) {
        fprintf(stderr, "%s\n", err.message);
    } else {
        tap_keypoints_get(points, &view);
        for (size_t i = 0; i < view.count; i++)
            printf("%7.1f %7.1f  %.3f\n", view.xy[2 * i], view.xy[2 * i + 1], view.scores[i]);
        fprintf(stderr, "%zu points in %.0f ms\n", view.count, view.total_ms);
        status = 0;
    }
    tap_keypoints_free(points);
    tap_session_free(session);
    tap_model_release(model);
    tap_engine_release(engine);
    return status;
}
